//go:build native

package tokenizer

import "testing"

// The library's address of an empty text is 1. Go must not see it: the runtime ends the process
// ("invalid pointer found on stack") when it moves a stack with a pointer below 4096 on it.
func TestAnEmptyTextIsNoPointer(t *testing.T) {
	tok := load(t, "minilm")
	special := tok.Special()
	for _, ids := range [][]int32{nil, {special.CLS}, {special.CLS, special.SEP}} {
		text, n, code := tok.lib.decoded(ids, true)
		if text != nil || n != 0 || code != 0 {
			t.Errorf("%v: %d bytes at %p, code %d", ids, n, text, code)
		}
		for range 3 {
			if s, err := tok.Decode(ids); s != "" || err != nil {
				t.Errorf("%v: %q, %v", ids, s, err)
			}
		}
	}
	if s, err := tok.DecodeAll([]int32{special.CLS}); s != "[CLS]" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
}
