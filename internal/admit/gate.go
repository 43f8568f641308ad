package admit

//lint:file-ignore ST1005 The errors begin with the name of a field.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// Options configures a Gate. Zero fields take the defaults in brackets.
type Options struct {
	MaxHeldBytes int64         // requests and results in memory together [1 GiB]
	Timeout      time.Duration // for an answer [140 s: below the SDKs' 150 s, after which they do not retry]
}

// Validate returns all errors in the options joined, nil for none.
func (o *Options) Validate() error {
	var all []error
	if o.MaxHeldBytes < 0 {
		all = append(all, fmt.Errorf("MaxHeldBytes must not be negative; got %d", o.MaxHeldBytes))
	}
	if o.Timeout < 0 {
		all = append(all, fmt.Errorf("Timeout must not be negative; got %v", o.Timeout))
	}
	return errors.Join(all...)
}

// Gate admits the requests of a process until it is shut, and bounds the bytes that they hold. Safe
// for concurrent use.
type Gate struct {
	opt   Options
	held  atomic.Int64
	all   context.Context         // of every Work
	abort context.CancelCauseFunc // ends all

	mu      sync.Mutex // guards the fields below
	running int
	isShut  atomic.Bool   // written under mu, read without it
	shutAt  time.Time     // of shut
	idle    chan struct{} // closed when the gate is shut and nothing runs
}

// New returns an open gate. o must be valid.
func New(o Options) *Gate {
	o.MaxHeldBytes, o.Timeout = cmp.Or(o.MaxHeldBytes, 1<<30), cmp.Or(o.Timeout, 140*time.Second)
	g := &Gate{opt: o, idle: make(chan struct{})}
	g.all, g.abort = context.WithCancelCause(context.Background())
	return g
}

// Open returns nil, or the retryable 503 once a drain has begun.
func (g *Gate) Open() error {
	if g.isShut.Load() {
		return errs.ShuttingDown()
	}
	return nil
}

// Draining reports whether the gate is shut, so that new work is refused.
func (g *Gate) Draining() bool { return g.isShut.Load() }

// ShutAt returns the time when the gate was shut, or zero.
func (g *Gate) ShutAt() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shutAt
}

// Running returns the number of requests that were admitted and have not ended.
func (g *Gate) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Held returns the bytes of requests and results that are in memory.
func (g *Gate) Held() int64 { return g.held.Load() }

// Reserve counts bytes more of a request that is being received, or returns the retryable 503 for
// which there is no room. Free gives them back.
func (g *Gate) Reserve(bytes int64) error {
	if !g.take(bytes) {
		return errs.FullQueueBytes(g.held.Load(), bytes, g.opt.MaxHeldBytes)
	}
	return nil
}

// Free gives back bytes that Reserve counted.
func (g *Gate) Free(bytes int64) { g.held.Add(-bytes) }

// take counts bytes if there is room. It never counts more than fit, even for a moment.
func (g *Gate) take(bytes int64) bool {
	for {
		held := g.held.Load()
		if bytes > g.opt.MaxHeldBytes-held {
			return false
		}
		if g.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

// Request describes a request that asks to be admitted.
type Request struct {
	Bytes int64     // that Reserve counted for it
	Field string    // the client's name for its items, for errors [items]
	Began time.Time // when it had arrived; its timings count from then [now]
}

// Enter admits a request, or refuses it with the retryable 503 once a drain has begun. The caller
// ends the Work.
func (g *Gate) Enter(r Request) (*Work, error) {
	g.mu.Lock()
	if g.isShut.Load() {
		g.mu.Unlock()
		return nil, errs.ShuttingDown()
	}
	g.running++
	g.mu.Unlock()
	w := &Work{gate: g, request: r.Bytes, field: cmp.Or(r.Field, "items"), began: r.Began}
	if w.began.IsZero() {
		w.began = time.Now()
	}
	w.ctx, w.cancel = context.WithCancelCause(g.all)
	w.ctx, w.stop = context.WithTimeoutCause(w.ctx, g.opt.Timeout, errs.Late(g.opt.Timeout))
	return w, nil
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.isShut.Load() && g.running == 0 {
		close(g.idle)
	}
}

// Shut refuses further requests. Those that were admitted go on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut.Load() {
		return
	}
	g.shutAt = time.Now()
	g.isShut.Store(true)
	if g.running == 0 {
		close(g.idle)
	}
}

// LastAnswers bounds how long Drain waits for requests that it has cut short.
const LastAnswers = 5 * time.Second

// Drain shuts the gate and waits until all admitted requests have ended, whichever entrance they
// came by. If ctx ends first, Drain ends them with the retryable 503, waits for them for at most
// LastAnswers more, and returns an error that wraps ctx's. Every entrance may call it; all calls
// wait for the same requests.
func (g *Gate) Drain(ctx context.Context) error {
	g.Shut()
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		select {
		case <-g.idle: // nothing ran when the time was up
			return nil
		default:
		}
	}
	late := fmt.Errorf(
		"%d requests still ran when the time for draining was up; they were answered with a retryable 503: %w",
		g.Running(), ctx.Err())
	g.abort(errs.ShuttingDown())
	last := time.NewTimer(LastAnswers)
	defer last.Stop()
	select {
	case <-g.idle:
	case <-last.C:
	}
	return late
}
