package control

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/configpoll"
)

// A document that is nested deeply takes memory in proportion to its bytes, not to its bytes times
// its depth. What it says is the server's matter.
func TestNestedConfigsTakeLittleMemory(t *testing.T) {
	const depth = 5000
	config := strings.Repeat(`{"a":`, depth) + "[" + strings.Repeat("1,", depth) + "1]" +
		strings.Repeat("}", depth)
	text := json.RawMessage(`{"model_id":"org/a","model_config":` + config + `}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x := readExported(text)
	e, err := exportOf("default", &configpoll.Export{}, []exported{x})
	runtime.ReadMemStats(&after)
	if err != nil || len(e.Models) != 1 {
		t.Fatalf("%v %+v", err, e)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes of JSON took %d bytes of memory", len(config), took)
	}
}

// A document without its text is handed on as sie-config and gateways read the same JSON.
func TestExportsInJSON(t *testing.T) {
	const config = `{"sie_id":"org/a","x":["\ud83d\ude00",1e3]}`
	x := readExported(json.RawMessage(`{"model_id":"org/a","model_config":` + config + `}`))
	want := "{\n\"sie_id\": \"org/a\",\n\"x\": [\n\"😀\",\n1.0e3\n]\n}"
	if x.problem != nil || x.YAML != want {
		t.Errorf("%v: got %s", x.problem, x.YAML)
	}
	if x := readExported(json.RawMessage(`{"model_id":"org/a"}`)); x.problem == nil {
		t.Errorf("a model without a document: %+v", x)
	}
}
