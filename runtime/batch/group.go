package batch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Item is one sequence of a batch: a text, a pair of texts, or a document with its query.
type Item struct {
	// Inputs and the fields below are read until the item's group is done.
	Inputs
	// Prefix is what the item begins with, before IDs; nil: nothing. Such an item has no other
	// inputs.
	Prefix *Prefix
	// Cost is the item's share of a batch's cost and of the device's time, in tokens; 0: len(IDs).
	// A prefix is not in it.
	Cost int
	// Query is the query that the item is compared with; nil: none.
	Query *Query
	// Adapter changes the weights for this item; nil: none.
	Adapter Adapter
	// Specs describe the item's results, one for each output of the program; at most MaxOutputs.
	Specs []Spec
	// Index is the item's place in its group.
	Index int

	group *Group
	at    time.Time // of arrival
	work  float64
	kind  laneKind
}

// MaxOutputs is the largest number of outputs of a program.
const MaxOutputs = 4

// Query holds the token vectors of one query. Many items of a batch may share it; the batch
// contains it once.
type Query struct {
	Rows []float32 // N rows, end to end
	N    int
}

// Adapter identifies the LoRA adapter of an item. Only the Runner knows its type. It must be
// comparable with ==.
type Adapter any

// Spec describes the form of one result.
type Spec struct {
	// DType is the output type, in the device's numbering.
	DType int32
	// Dims is the number of leading components to keep; 0 keeps all. For a sparse output it is the
	// number of columns that the result has room for, for one that is found the number of records.
	Dims int32
	// Threshold is the logit above which scores are given by an output that is found; else 0.
	Threshold float32
	// Normalize divides the result by its L2 norm after cutting it to Dims.
	Normalize bool
	// Values marks an output that the device writes without gaps in the order of the batch. The
	// fields above are then ignored.
	Values bool
	// Bytes is the size of the result in bytes.
	Bytes int
}

// Result holds the bytes of one item's results, by output. The caller of Wait owns them.
type Result [MaxOutputs][]byte

// Group collects the results of one client request. Create it with NewGroup; its methods are safe
// for concurrent use.
type Group struct {
	ctx      context.Context
	deadline time.Time

	mu      lockorder.Mutex[lockorder.Group]
	results []Result
	bad     []int // items whose results are not finite
	left    int
	err     error
	done    chan struct{}

	first   time.Time // start of the first batch that holds one of the items
	last    time.Time // end of the last batch
	stopped atomic.Bool
}

// NewGroup returns a group of n items, n ≥ 1. When ctx ends, the group's queued items are dropped;
// a batch that already runs finishes, and its results for the group are discarded.
func NewGroup(ctx context.Context, n int) *Group {
	g := &Group{ctx: ctx, results: make([]Result, n), left: n, done: make(chan struct{})}
	if d, ok := ctx.Deadline(); ok {
		g.deadline = d
	}
	return g
}

// Wait blocks until every item has its result, one failed, or the group's context ended. The
// results are in item order and belong to the caller.
func (g *Group) Wait() ([]Result, error) {
	select {
	case <-g.done:
	case <-g.ctx.Done():
		g.Fail(context.Cause(g.ctx))
		<-g.done
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return nil, g.err
	}
	return g.results, nil
}

// NonFinite returns the indices of the items whose results are not finite. These hold a NaN or an
// infinity, or were computed from one. Call it after Wait.
func (g *Group) NonFinite() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bad
}

// Fail ends the group with err, unless it has already ended.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left == 0 || g.err != nil {
		return
	}
	g.err = err
	g.stopped.Store(true)
	close(g.done)
}

// Times returns how long a finished group waited and ran. wait is the time from submitted to the
// start of its first batch, run the time from there to the end of its last batch.
func (g *Group) Times(submitted time.Time) (wait, run time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first.IsZero() {
		return 0, 0
	}
	return g.first.Sub(submitted), g.last.Sub(g.first)
}

// gone reports whether the group's items must not run any more: it ended, was cancelled or is late.
func (g *Group) gone(now time.Time) bool {
	return g.stopped.Load() || g.ctx.Err() != nil || (!g.deadline.IsZero() && now.After(g.deadline))
}

// started records the start of a batch that holds some of the group's items.
func (g *Group) started(now time.Time) {
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = now
	}
	g.mu.Unlock()
}

// deliver stores the result of item index. bad: it is not finite.
func (g *Group) deliver(index int, r Result, bad bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	g.results[index] = r
	if bad {
		g.bad = append(g.bad, index)
	}
	g.last = now
	if g.left--; g.left == 0 {
		g.stopped.Store(true)
		close(g.done)
	}
}
