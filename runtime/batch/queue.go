package batch

import (
	"context"
	"sync"
	"time"
)

// Queue holds the waiting items of one program. Its methods are safe for concurrent use.
type Queue struct {
	opt       Options
	scheduler *Scheduler
	run       Runner

	lanes   [laneKinds]lane // scheduler.mu guards this and the fields below
	ctl     *controller
	running int // batches in flight
	closed  bool

	batches sync.WaitGroup
}

// NewQueue returns a queue that runs its batches with run, in the slots of the scheduler's devices.
func NewQueue(scheduler *Scheduler, run Runner, opt Options) *Queue {
	opt.setDefaults()
	q := &Queue{
		opt: opt, scheduler: scheduler, run: run, ctl: newController(opt.Adaptive, opt.MaxWait, opt.MaxCost),
	}
	q.lanes[short] = lane{q: q, kind: short, maxItems: opt.MaxItems, maxBytes: opt.MaxBytes}
	q.lanes[long] = lane{q: q, kind: long, maxItems: max(1, opt.MaxItems/2), maxBytes: opt.MaxBytes / 2}
	return q
}

// Submit queues items of g. The first items of a request are submitted without wait: either all of
// them are queued, or Submit returns a FullError. They are also refused while older requests wait
// for room. Later items of an admitted request are submitted with wait: they wait for room in the
// order of the calls, until ctx ends, and no other bound applies. If Submit returns an error other
// than a FullError, g has failed with that error.
func (q *Queue) Submit(ctx context.Context, g *Group, items []Item, wait bool) error {
	q.scheduler.mu.Lock()
	if q.closed {
		q.scheduler.mu.Unlock()
		g.Fail(ErrClosed)
		return ErrClosed
	}
	var add [laneKinds]load
	for i := range items {
		it := &items[i]
		if it.Cost == 0 {
			it.Cost = len(it.IDs)
		}
		it.group, it.work = g, q.opt.Work.behind(it.prefixed(), it.Cost)
		it.kind = q.laneKindLocked(it.Cost, it.work)
		add[it.kind].add(it)
	}
	now := time.Now()
	var waiters [laneKinds]*waiter
	for c := range q.lanes {
		l := &q.lanes[c]
		switch {
		case add[c].count == 0:
		case !wait:
			if e := l.refusesLocked(add[c], now); e != nil {
				q.scheduler.mu.Unlock()
				return e
			}
		case len(l.waiting) > 0 || !l.fits(add[c]):
			waiters[c] = &waiter{chunk: items, load: add[c], ended: make(chan struct{})}
		}
	}
	for c := range q.lanes {
		l := &q.lanes[c]
		switch {
		case waiters[c] != nil:
			l.waiting = append(l.waiting, waiters[c])
		case add[c].count > 0:
			l.joinLocked(items, now)
		}
	}
	q.scheduler.dispatchLocked(now)
	q.scheduler.mu.Unlock()
	var failed error
	for c, w := range waiters { // also after one has failed: no waiter may stay in its lane
		if w == nil {
			continue
		}
		if err := q.lanes[c].wait(ctx, w); err != nil {
			g.Fail(err) // the items of the other lane may be queued
			failed = err
		}
	}
	return failed
}

// Room returns why n short items of a new request would be refused now, or nil. It does not count
// their token bytes. It is a cheap check before tokenising, so that an overloaded server spends
// little on requests that it will refuse. After nil, Submit still decides.
func (q *Queue) Room(n int) *FullError {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return q.lanes[short].refusesLocked(load{count: n}, time.Now())
}

// Idle reports whether no item is queued and no batch is in flight.
func (q *Queue) Idle() bool {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return len(q.lanes[short].items)+len(q.lanes[long].items)+q.running == 0
}

// RequestDone tells the latency controller how long a whole request took.
func (q *Queue) RequestDone(total time.Duration) {
	q.scheduler.mu.Lock()
	q.ctl.requestDone(total)
	q.scheduler.mu.Unlock()
}

// Stats holds a snapshot of a queue and its latency controller.
type Stats struct {
	Items, Tokens int
	Calibrated    bool
	TargetP50     float64 // ms
	Wait          time.Duration
	BatchCost     int
	P50           float64 // ms
	Headroom      float64 // ms
	Fill          float64
}

// Stats returns a snapshot of the queue.
func (q *Queue) Stats() Stats {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	c, l := q.ctl, &q.lanes
	return Stats{
		Items: l[short].count + l[long].count, Tokens: l[short].tokens + l[long].tokens,
		Calibrated: c.calibrated, TargetP50: c.target, Wait: c.wait, BatchCost: c.cost, P50: c.p50,
		Headroom: c.headroom, Fill: c.fill.mean(),
	}
}

// Close refuses new items, fails the queued ones with err and waits for the batches in flight.
func (q *Queue) Close(err error) {
	q.scheduler.mu.Lock()
	q.closed = true
	var left []*Item
	for c := range q.lanes {
		left = append(left, q.lanes[c].drainLocked(ErrClosed)...)
		q.scheduler.forgetLocked(&q.lanes[c])
	}
	q.scheduler.mu.Unlock()
	for _, it := range left {
		it.group.Fail(err)
	}
	q.batches.Wait()
}
