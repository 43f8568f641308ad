package catalog

import (
	"reflect"
	"testing"
)

// What Text writes reads back as it was: no text becomes a number or a boolean, no whole float an
// integer, and no character is lost.
func TestTextReadsBack(t *testing.T) {
	content := map[string]any{
		"sie_id":   "org/a",
		"profiles": map[string]any{"default": map[string]any{}, "on": nil, "a: b": true},
		"texts": []any{"", "yes", "null", "1", "1.0", "0x1F", "1e3", "~", "- a", "a: b", "#x",
			"é \"\\ \n\t\r",
			"a\x00b\x1b\x7f", "\u0080\u0085\u00a0", "\u2028\u2029\ufeff\ufffe\uffff", "😀", " x "},
		"numbers": []any{int64(1), 1.0, 0.5, 1e20, 1e-7, 1.5e-9, -0.25, int64(-7)},
		"nested":  []any{[]any{}, []any{[]any{"x"}}, map[string]any{"k": []any{map[string]any{"z": nil}}}},
		"empty":   map[string]any{},
	}
	src := Text(content)
	got, err := Document{Name: "text", Source: src}.Content()
	if err != nil || !reflect.DeepEqual(got, content) {
		t.Errorf("%v\n got %#v\nwant %#v\n%s", err, got, content, src)
	}
}
