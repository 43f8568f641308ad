package words

import (
	"errors"
	"strings"
	"testing"
)

// Ranges are bounded as windows are: at the bound, and one word beyond it.
func TestRangesAreBounded(t *testing.T) {
	// Three windows of 5 words that share 2 have 11 words.
	for n, want := range map[int]int{0: 1, 5: 1, 6: 2, 8: 2, 9: 3, 11: 3, 12: 0, 5000: 0} {
		ranges, err := Ranges(strings.Repeat("a ", n), 5, 2, 3)
		var bound *BoundError
		if len(ranges) != want || errors.As(err, &bound) != (want == 0) {
			t.Errorf("%d words: %d ranges, %v; want %d", n, len(ranges), err, want)
		}
	}
}
