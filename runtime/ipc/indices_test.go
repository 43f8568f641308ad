package ipc

import (
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// The indices of an error are the request's, not the slice's: in its message, its parameter and its
// item. The error that came is left as it was, since others may hold it.
func TestErrorsHaveTheIndicesOfTheRequest(t *testing.T) {
	for _, first := range []int{0, 64} {
		item := 5
		e := errs.Invalid("items[5].text", "Field 'items[5].text': wrong, as is items[6] of 'other[5]'")
		e.Item = &item
		got := ofRequest(e, first, "items")
		want := map[int][2]string{
			0:  {"items[5].text", "Field 'items[5].text': wrong, as is items[6] of 'other[5]'"},
			64: {"items[69].text", "Field 'items[69].text': wrong, as is items[70] of 'other[5]'"},
		}[first]
		if got.Param != want[0] || got.Message != want[1] || got.Item == nil || *got.Item != first+5 {
			t.Errorf("from %d: %q, %q, item %v", first, got.Param, got.Message, got.Item)
		}
		if item != 5 || e.Param != "items[5].text" {
			t.Errorf("from %d: the error that came is changed: %+v, item %d", first, e, item)
		}
		if got := ofRequest(errs.Invalid("model", "no item"), first, "items"); got.Item != nil {
			t.Errorf("from %d: an error of no item has item %d", first, *got.Item)
		}
	}
}
