package batch

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An item's Cost, not its number of ids, decides when batches close and how much time is queued;
// the bound on memory counts ids.
func TestCostIsNotTheNumberOfIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Second}
		q := NewQueue(NewSingleScheduler(1), r,
			Options{MaxCost: 250, MaxBytes: 4 * 6, Adaptive: AdaptiveOptions{Disabled: true}})
		first := submit(t, q, t.Context(), text(1, 1)) // holds the device
		dear := func(n int) (items []Item) {
			for range n {
				it := text(2, 1)
				it.Cost = 100
				items = append(items, it)
			}
			return items
		}
		group := submit(t, q, t.Context(), dear(5)...)
		if s := q.Stats(); s.Items != 5 || s.Tokens != 500 {
			t.Errorf("%d items of %d tokens wait, want 5 of 500", s.Items, s.Tokens)
		}
		six := NewGroup(t.Context(), 2)
		var full *FullError
		if err := q.Submit(t.Context(), six, dear(2), false); !errors.As(err, &full) {
			t.Errorf("seven ids where six may wait: %v", err)
		}
		for _, g := range []*Group{first, group} {
			if _, err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
		q.Close(ErrClosed)
		if !slices.Equal(r.batches, []int{1, 2, 2, 1}) {
			t.Errorf("batches of %v items, want 1, 2, 2 and 1", r.batches)
		}
		if s := q.Stats(); s.Items != 0 || s.Tokens != 0 {
			t.Errorf("%d items of %d tokens are left", s.Items, s.Tokens)
		}
	})
}
