package task

import (
	"errors"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
)

// Room is asked for the found results of as many chunks as are in memory at a time, and never for
// more than that: chunks that came and went make room for others.
func TestChunkRoom(t *testing.T) {
	var held int64
	var whole []int
	r := chunkRoom{usual: usualFound, hold: func(bytes int64, items int) error {
		held, whole = held+bytes, append(whole, items)
		return nil
	}}
	chunk := func(sizes ...int) (items []batch.Item) {
		for _, n := range sizes {
			items = append(items, batch.Item{Specs: []batch.Spec{{Bytes: n}, {Bytes: usualFound / 2}}})
		}
		return items
	}
	const large = 1 << 20
	for i, c := range []struct {
		sizes []int
		held  int64 // afterwards
	}{
		{[]int{0, usualFound / 2}, 0}, // usual
		{[]int{large + usualFound/2, 0, large + usualFound/2}, 2 * large},
		{[]int{large + usualFound/2}, 3 * large},
		{nil, 3 * large},
		{nil, 3 * large},
		{[]int{large + usualFound/2}, 3 * large}, // the two of chunk 1 are gone
		{[]int{5*large + usualFound/2}, 6 * large},
	} {
		if err := r.above("f", 0.5, chunk(c.sizes...), i); err != nil || held != c.held {
			t.Errorf("chunk %d: %d bytes are held, want %d, %v", i, held, c.held, err)
		}
	}
	if len(whole) != 3 || whole[0] != 1 || whole[1] != 2 || whole[2] != 6 {
		t.Errorf("asked after %v items", whole)
	}
	refused := errors.New("not now")
	r.hold = func(int64, int) error { return refused }
	if err := r.above("f", 0.5, chunk(9*large), 1); err != refused {
		t.Error(err)
	}
	r.hold = func(int64, int) error { return errs.AnswerTooLarge("items", 2, 1, 0) }
	err := errs.As(r.above("options.threshold", 0, chunk(9*large), 1))
	if err.Status != 400 || err.Param != "options.threshold" ||
		!strings.Contains(err.Message, "'options.threshold' is 0") {
		t.Error(err)
	}
}
