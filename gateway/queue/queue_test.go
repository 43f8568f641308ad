package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/work"
)

// Requests of one and of many slices are answered in the order of their items.
func TestAnswers(t *testing.T) {
	g := newRig(t, nil)
	g.sidecar("w1", nil)
	for _, n := range []int{1, 8, 33, 300} {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = fmt.Sprint("text ", n, " ", i)
		}
		res, err := g.encode(texts...)
		check(t, res, err, texts...)
	}
}

// What the slices say is put together: tokens are added up and a query that each of them read
// counts once; of times the longest counts, and the worker is the one that took it.
func TestOutcome(t *testing.T) {
	r := &request{slices: []slice{
		{result: &work.Result{WorkerID: "a", ProcessingMS: 3, InferenceMS: 2, TokenizationMS: 1,
			ModelID: "m", Revision: "r", Units: &work.Units{
				InputTokens: 10, ContentInputTokens: 7, QueryTokens: 4, QueryContent: 2,
			}}},
		{result: &work.Result{WorkerID: "b", ProcessingMS: 9, InferenceMS: 1, TokenizationMS: -1,
			PayloadFetchMS: 5, Units: &work.Units{
				InputTokens: 20, ContentInputTokens: 15, QueryTokens: 4, QueryContent: 2,
			}}},
		{result: &work.Result{WorkerID: "c"}},
	}}
	r.slices[1].began = time.Now()
	r.slices[1].takenAt = r.slices[1].began.Add(3 * time.Second)
	o, u := r.outcome(admit.Unbounded(t.Context()), 5)
	if o.Tokens != 26 || u.InputTokens != 26 || u.ContentTokens != 20 || o.Worker != "b" || o.Items != 5 ||
		o.ModelID != "m" || o.Revision != "r" || o.Timings.Inference != 2*time.Millisecond ||
		o.Timings.Tokenize != time.Millisecond || o.Fetch != 5*time.Millisecond ||
		o.QueueWait != 3*time.Second {
		t.Errorf("%+v %+v", o, u)
	}
}

// A request is cut so that it occupies the lane's workers, within the bounds on items, bytes and
// results; nothing is left out.
func TestCut(t *testing.T) {
	sized := func(n, bytes int) []rawItem {
		out := make([]rawItem, n)
		for i := range out {
			out[i] = make(rawItem, bytes)
		}
		return out
	}
	for name, c := range map[string]struct {
		items          []rawItem
		workers, extra int
		result         int
		slices, most   int
		offloaded      int
	}{
		"one":                   {sized(1, 100), 4, 0, 0, 1, 1, 0},
		"few stay together":     {sized(8, 100), 4, 0, 0, 1, 8, 0},
		"spread":                {sized(64, 100), 4, 0, 0, 4, 16, 0},
		"spread, not too thin":  {sized(32, 100), 16, 0, 0, 4, 8, 0},
		"many":                  {sized(1000, 100), 4, 0, 0, 32, 32, 0},
		"no worker is known":    {sized(64, 100), 0, 0, 0, 2, 32, 0},
		"bytes":                 {sized(10, 100<<10), 1, 0, 0, 5, 2, 0},
		"results":               {sized(32, 100), 1, 0, 10 << 20, 11, 3, 0},
		"a large item is alone": {sized(2, 600<<10), 1, 0, 0, 2, 1, 0},
		"above the limit":       {sized(2, 1<<20), 1, 0, 0, 2, 1, 2},
		"with its query":        {sized(2, 100), 1, 1 << 20, 0, 1, 2, 1},
	} {
		cuts := cut(c.items, c.workers, c.extra, 1<<20, func(int) int { return c.result })
		most, offloaded, next := 0, 0, 0
		for i := range cuts {
			if cuts[i].first != next || cuts[i].end <= next {
				t.Errorf("%s: slice %d is [%d, %d)", name, i, cuts[i].first, cuts[i].end)
			}
			next = cuts[i].end
			most, offloaded = max(most, next-cuts[i].first), offloaded+b2i(cuts[i].offload)
		}
		if next != len(c.items) || len(cuts) != c.slices || most != c.most || offloaded != c.offloaded {
			t.Errorf("%s: %d items in %d slices of at most %d, %d offloaded",
				name, next, len(cuts), most, offloaded)
		}
	}
}

// A request is cut small for the workers that the open requests leave free, and for no others.
func TestRequestsSpreadOverFreeWorkers(t *testing.T) {
	for _, c := range []struct{ workers, open, free int }{
		{8, 0, 8}, {8, 1, 7}, {8, 32, 7}, {8, 33, 6}, {8, 96, 5}, {8, 224, 1}, {8, 10_000, 1},
		{1, 5, 1}, {0, 0, 1},
	} {
		if got := (&line{unanswered: c.open}).free(c.workers); got != c.free {
			t.Errorf("%d of %d workers are free beside %d items, want %d", got, c.workers, c.open, c.free)
		}
	}
	if got := (*line)(nil).free(8); got != 8 {
		t.Errorf("%d of 8 workers are free before the first request", got)
	}
}
