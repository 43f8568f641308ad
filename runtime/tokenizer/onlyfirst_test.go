package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// With OnlyFirst the second text of a pair stays whole as long as it leaves the first a token; what
// is kept of the first is what OnlySecond keeps of it as the second text. Else the longer one is
// cut.
func TestOnlyTheFirstTextIsCut(t *testing.T) {
	tok := load(t, "minilm")
	special := tok.Special()
	words := func(word string, n int) string { return strings.Repeat(word+" ", n) }
	halves := func(b *Batch) (first, second []int32) {
		at := slices.Index(b.IDs, special.SEP)
		return b.IDs[1:at], b.IDs[at+1 : len(b.IDs)-1]
	}
	for _, left := range []bool{false, true} {
		for a := range 14 {
			for b := range 14 {
				text := words("one two three", a)
				hypothesis := words("sea", b)
				var cut, swapped Batch
				opt := Options{MaxTokens: 3 + 12, OnlyFirst: true, Left: left}
				must(tok.EncodePairs(&cut, []string{text}, []string{hypothesis}, opt))
				first, second := halves(&cut)
				if cut.Truncated[0] != (3*a+b > 12) || len(cut.IDs) != len(cut.TypeIDs) {
					t.Errorf("%d, %d: cut %v, %d ids", a, b, cut.Truncated[0], len(cut.IDs))
				}
				opt.OnlyFirst = false
				if 3*a+b > 12 && b >= 12 {
					must(tok.EncodePairs(&swapped, []string{text}, []string{hypothesis}, opt))
					if !slices.Equal(cut.IDs, swapped.IDs) {
						t.Errorf("%d, %d: the longer one is not cut: %v", a, b, cut.IDs)
					}
					continue
				}
				opt.OnlySecond = true
				must(tok.EncodePairs(&swapped, []string{hypothesis}, []string{text}, opt))
				if wantSecond, wantFirst := halves(&swapped); len(second) != b ||
					!slices.Equal(first, wantFirst) || !slices.Equal(second, wantSecond) {
					t.Errorf("%d, %d, left %v: %v and %v, want %v and %v", a, b, left, first, second,
						wantFirst, wantSecond)
				}
			}
		}
	}
}
