package configd

import (
	"fmt"
	"slices"
	"testing"
)

// A history knows the ids since each of its cursors, as far back as it is long, and no others.
func TestHistory(t *testing.T) {
	h := history{name: "x"}
	cursors := []string{h.cursor()}
	for i := range maxHistory + 10 {
		before := h
		h = before.with(fmt.Sprintf("m%05d", i%2000))
		before.with("another") // a change that was not made leaves no trace
		cursors = append(cursors, h.cursor())
	}
	for back := range maxHistory + 11 {
		ids, ok := h.since(cursors[len(cursors)-1-back])
		if ok != (back <= maxHistory) || ok && len(ids) != back {
			t.Fatalf("%d changes ago: %d ids, %v", back, len(ids), ok)
		}
		if ok && back > 0 && ids[back-1] != fmt.Sprintf("m%05d", maxHistory+9) {
			t.Fatalf("%d changes ago: %q", back, ids[back-1])
		}
	}
	twice := history{name: "x"}.with("b").with("a").with("b")
	if ids, ok := twice.since("x.0"); !ok || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("%q %v", ids, ok)
	}
	for _, cursor := range []string{"", "x", "x.", "y.1", "x.4", "x.-1", ".1", "x.1.1"} {
		if ids, ok := twice.since(cursor); ok {
			t.Errorf("%q: %q", cursor, ids)
		}
	}
}
