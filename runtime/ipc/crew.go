package ipc

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxIdle bounds the goroutines that a crew keeps.
const maxIdle = 16

// crew runs functions on goroutines that it keeps: their stacks have grown to what a slice needs,
// and to grow a new one for each call took a tenth of the call's CPU. Its methods are safe for
// concurrent use.
type crew struct {
	ctx   context.Context // idle goroutines end with it
	all   *sync.WaitGroup // of the goroutines
	calls chan func()     // without a buffer: an idle goroutine takes the call, or nobody
	idle  atomic.Int32
}

func newCrew(ctx context.Context, all *sync.WaitGroup) *crew {
	return &crew{ctx: ctx, all: all, calls: make(chan func())}
}

// run runs f on an idle goroutine or on a new one. It is called by a goroutine that is in all.
func (c *crew) run(f func()) {
	select {
	case c.calls <- f:
	default:
		c.all.Go(func() { c.serve(f) })
	}
}

func (c *crew) serve(f func()) {
	for {
		f()
		f = nil // an idle goroutine holds nothing
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.calls:
			c.idle.Add(-1)
		case <-c.ctx.Done():
			return
		}
	}
}
