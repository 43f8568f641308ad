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
