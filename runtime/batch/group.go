package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Item is one tokenised text and what its result should look like.
type Item struct {
	// IDs are the token ids, special tokens included. They are read until the item's group is done.
	IDs []int32
	// Spec says what the result's bytes are.
	Spec Spec
	// Index is the item's place in its group.
	Index int

	group *Group
	at    time.Time
}

// Spec is the form of one result row.
type Spec struct {
	// DType is the output type, in the device's numbering.
	DType int32
	// Dims is how many leading components are kept; 0 keeps all.
	Dims int32
	// Normalize divides by the L2 norm after cutting.
	Normalize bool
	// Bytes is the size of the result.
	Bytes int
}

// Group collects the results of one client request. Create it with NewGroup; its methods are safe for concurrent use.
type Group struct {
	ctx      context.Context
	deadline time.Time

	mu      sync.Mutex
	results [][]byte
	left    int
	err     error
	done    chan struct{}

	first   time.Time // start of the first batch that holds one of the items
	last    time.Time // end of the last batch
	stopped atomic.Bool
}

// NewGroup returns a group of n items, n ≥ 1. When ctx ends the group's queued items are dropped; a batch that already
// runs finishes and its results are thrown away.
func NewGroup(ctx context.Context, n int) *Group {
	g := &Group{ctx: ctx, results: make([][]byte, n), left: n, done: make(chan struct{})}
	if d, ok := ctx.Deadline(); ok {
		g.deadline = d
	}
	return g
}

// Wait blocks until every item has its result, one failed, or the group's context ended. The results are in item order
// and belong to the caller.
func (g *Group) Wait() ([][]byte, error) {
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

// Times are the durations of a finished group: Wait from submission of the first item to its batch, Run from there to
// the end of the last batch.
func (g *Group) Times(submitted time.Time) (wait, run time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first.IsZero() {
		return 0, 0
	}
	return g.first.Sub(submitted), g.last.Sub(g.first)
}

// gone reports whether the group's items are no longer worth running.
func (g *Group) gone(now time.Time) bool {
	return g.stopped.Load() || g.ctx.Err() != nil || (!g.deadline.IsZero() && now.After(g.deadline))
}

// started notes that a batch with some of the group's items begins.
func (g *Group) started(now time.Time) {
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = now
	}
	g.mu.Unlock()
}

// deliver stores one result.
func (g *Group) deliver(index int, b []byte, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	g.results[index] = b
	g.last = now
	if g.left--; g.left == 0 {
		g.stopped.Store(true)
		close(g.done)
	}
}
