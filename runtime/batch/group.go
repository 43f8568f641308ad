package batch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Item is one packed sequence: a text, a pair of texts, or a document with the query it is compared
// with.
type Item struct {
	// IDs are the token ids, special tokens included. They are read until the item's group is done;
	// so are the fields below.
	IDs []int32
	// Cost is what the item takes of a batch's cost and of the device's time, in tokens; 0: as many
	// as there are IDs.
	Cost int
	// TypeIDs is as long as IDs; nil: all 0.
	TypeIDs []int32
	// Keep is as long as IDs, 1 for the tokens whose rows the batch keeps, else 0; nil: all.
	Keep []uint8
	// Query is what the item is compared with; nil: nothing.
	Query *Query
	// Adapter changes the weights for this item; nil: none.
	Adapter Adapter
	// Specs say what the item's results are, one for each output of the program; at most
	// MaxOutputs.
	Specs []Spec
	// Index is the item's place in its group.
	Index int

	group *Group
	at    time.Time // of arrival
	work  float64
	class class
}

// MaxOutputs is how many outputs a program can have.
const MaxOutputs = 4

// Query is a matrix of token vectors that many items of a batch may be compared with; it travels
// once.
type Query struct {
	Rows []float32 // N rows, end to end
	N    int
}

// Adapter stands for a change of weights that some items of a batch have. Only the Runner knows
// what it is; it is compared by ==.
type Adapter any

// Spec is the form of one result.
type Spec struct {
	// DType is the output type, in the device's numbering.
	DType int32
	// Dims is how many leading components are kept, or for a sparse output how many it has room
	// for; 0 keeps all.
	Dims int32
	// Normalize divides by the L2 norm after cutting.
	Normalize bool
	// Values marks an output that the device writes without gaps in the order of the batch,
	// whatever the fields above say.
	Values bool
	// Bytes is the size of the result.
	Bytes int
}

// Result is what one item gave, by output. The bytes belong to whoever waited for it.
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

// NewGroup returns a group of n items, n ≥ 1. When ctx ends the group's queued items are dropped; a
// batch that already runs finishes and its results are thrown away.
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

// NonFinite is the items, by their index, whose results hold a number that is NaN or infinite or
// were made of one. To be asked after Wait.
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

// Times are the durations of a finished group: Wait from submission of the first item to its batch,
// Run from there to the end of the last batch.
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

// deliver stores one result; bad: it is not finite.
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
