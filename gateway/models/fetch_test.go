package models

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// JSON that is nested deeply is refused, and takes memory in proportion to its bytes, not to its
// bytes times its depth.
func TestNestedConfigsTakeLittleMemory(t *testing.T) {
	const depth = 5000
	text := json.RawMessage(`{"model_id":"org/a","model_config":` + strings.Repeat(`{"a":`, depth) + "[" +
		strings.Repeat("1,", depth) + "1]" + strings.Repeat("}", depth) + "}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x := readExported(text) // it has too many lines; without that bound it would be nested too deeply
	runtime.ReadMemStats(&after)
	if x.err == nil || x.one != nil {
		t.Error("it is a model")
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("%d bytes of JSON took %d bytes of memory", len(text), took)
	}
}

// A configuration in JSON without its text is read as sie-config reads the same as a body: a
// character beyond U+FFFF may be escaped.
func TestExportsInJSON(t *testing.T) {
	const config = `{"sie_id":"org/a","hf_id":"org/a","inputs":{"text":true},
		"tasks":{"encode":{"dense":{"dim":8}}},
		"profiles":{"default":{"adapter_path":"sie_server.adapters.bert_flash:A","max_batch_tokens":8,
		"adapter_options":{"runtime":{"query_template":"\ud83d\ude00 {text}"}}}}}`
	x := readExported(json.RawMessage(`{"model_id":"org/a","model_config":` + config + `}`))
	if x.err != nil || x.one == nil {
		t.Fatalf("%+v: %v", x, x.err)
	}
	for _, bad := range []string{`{"model_id":"org/a"}`, `{"model_id":"org/a","model_config":null}`,
		`{"model_id":"org/a","model_config":[1]}`} {
		if x := readExported(json.RawMessage(bad)); x.err == nil || x.one != nil || x.id != "org/a" {
			t.Errorf("%s is read: %+v", bad, x)
		}
	}
}
