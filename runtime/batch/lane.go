package batch

import (
	"context"
	"slices"
	"time"
)

// laneKind is short or long. Only items of one kind share a batch, and long batches hold at most
// one slot of a device.
type laneKind uint8

const (
	short laneKind = iota
	long
	laneKinds
)

// lane holds the waiting items of one kind of a queue. Scheduler.mu guards it.
type lane struct {
	q        *Queue
	kind     laneKind
	maxItems int
	maxBytes int64

	items   []*Item // in order of arrival
	load            // of them
	arrived time.Time
	waiting []*waiter // in order of arrival
	listed  bool      // in Scheduler.lanes
}

// load is the total of some items.
type load struct {
	count  int
	tokens int   // sum of their Cost
	bytes  int64 // size of their ids and places
	work   float64
}

func (l *load) add(it *Item) {
	l.count++
	l.tokens += it.Cost
	l.bytes += it.bytes()
	l.work += it.work
}

// remove subtracts one item. Without items, work is exactly 0: rounding errors do not remain.
func (l *load) remove(it *Item) {
	l.count--
	l.tokens -= it.Cost
	l.bytes -= it.bytes()
	l.work -= it.work
	if l.count == 0 {
		l.work = 0
	}
}

// waiter is a chunk of an admitted request whose items of one kind wait for room in a lane.
type waiter struct {
	chunk []Item // only the items of the lane's kind wait
	load  load
	ended chan struct{} // closed when the items are queued, or when it is certain that they never will be
	err   error         // set before ended is closed
}

// fits reports whether items of that load may join the lane. An empty lane takes any load.
func (l *lane) fits(add load) bool {
	return len(l.items) == 0 || l.count+add.count <= l.maxItems && l.bytes+add.bytes <= l.maxBytes
}

// refusesLocked returns why the lane takes no new items of that load, or nil if it takes them. No
// new request overtakes an admitted request that waits.
func (l *lane) refusesLocked(add load, now time.Time) *FullError {
	if len(l.waiting) > 0 || !l.fits(add) {
		e := &FullError{Pending: l.count, Limit: l.maxItems}
		for _, w := range l.waiting {
			e.Pending += w.load.count
		}
		return e
	}
	if limit := l.q.opt.MaxBacklog; limit > 0 && len(l.items) > 0 {
		if wait, known := l.q.scheduler.waitLocked(l, now); known && wait > limit {
			return &FullError{
				Pending: l.count, Limit: l.maxItems, Wait: wait, RetryAfter: retryAfter(wait, limit),
			}
		}
	}
	return nil
}

// joinLocked queues those items of the chunk that are of the lane's kind.
func (l *lane) joinLocked(chunk []Item, now time.Time) {
	for i := range chunk {
		if it := &chunk[i]; it.kind == l.kind {
			it.at = now
			l.items = append(l.items, it)
			l.add(it)
		}
	}
	l.arrived = now
	if !l.listed {
		l.listed = true
		l.q.scheduler.lanes = append(l.q.scheduler.lanes, l)
	}
}

// admitLocked queues the waiting chunks that fit now, the oldest first and none before an older
// one.
func (l *lane) admitLocked(now time.Time) {
	n := 0
	for _, w := range l.waiting {
		if !l.fits(w.load) {
			break
		}
		l.joinLocked(w.chunk, now)
		close(w.ended)
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
}

// dueLocked reports whether a batch should leave now, and if not, after which time to check again.
// idle: a device has no batch of the kind in flight.
func (l *lane) dueLocked(now time.Time, idle bool) (bool, time.Duration) {
	o := &l.q.opt
	if l.tokens >= l.q.ctl.cost || len(l.items) >= o.MaxRequests ||
		l.tokens > runTokens && l.work >= l.workLimitLocked() {
		return true, 0
	}
	oldest, newest := now.Sub(l.items[0].at), now.Sub(l.arrived)
	wait := l.q.ctl.wait
	pause := min(o.Coalesce, time.Duration(o.CoalesceRatio*float64(wait)))
	if idle {
		pause = o.IdleCoalesce
	}
	if oldest >= wait || newest >= pause {
		return true, 0
	}
	return false, min(wait-oldest, pause-newest)
}

// takeLocked removes and returns the next batch, and drops items whose group is gone. full: other
// items stay in the lane because the batch is full. A prefix counts once in took, not with its
// items.
func (l *lane) takeLocked(now time.Time) (batch []*Item, took load, full bool) {
	o := &l.q.opt
	limit := l.workLimitLocked()
	var queries querySet
	var prefixes prefixSet
	var sizes outputSizes
	n, spans := 0, 0
	for _, it := range l.items {
		if it.group.gone(now) {
			it.group.Fail(ErrExpired)
			l.remove(it)
			n++
			continue
		}
		runs, fits := prefixes.with(it, o.MaxPrefixTokens)
		tokens := took.tokens + it.Cost + runs*it.prefixed()
		if full = len(batch) > 0 && (!fits || tokens > l.q.ctl.cost ||
			tokens > runTokens && took.work+it.work > limit || len(batch) == o.MaxSeqs ||
			queries.with(it.Query) > o.MaxQueryRows || spans+len(it.Spans.First) > o.MaxSpans ||
			sizes.with(it) > o.MaxOutput); full {
			break
		}
		queries.add(it.Query)
		spans += len(it.Spans.First)
		sizes.add(it)
		batch = append(batch, it)
		took.add(it)
		took.tokens += runs * it.prefixed()
		took.work += float64(runs) * o.Work.of(it.prefixed())
		prefixes.add(it)
		l.remove(it)
		n++
	}
	clear(l.items[:n])
	l.items = l.items[n:]
	if len(l.items) == 0 {
		l.items = nil
	}
	l.admitLocked(now)
	return batch, took, full
}

// drainLocked empties the lane and returns its items. Waiting chunks end with err.
func (l *lane) drainLocked(err error) []*Item {
	left := l.items
	l.items, l.load = nil, load{}
	for _, w := range l.waiting {
		w.err = err
		close(w.ended)
	}
	l.waiting = nil
	return left
}

// wait waits until the chunk is queued, its queue closes or ctx ends.
func (l *lane) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
	}
	l.q.scheduler.mu.Lock()
	defer l.q.scheduler.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i < 0 { // the items were queued, or the queue was closed, at the same time
		return w.err
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	now := time.Now()
	l.admitLocked(now) // smaller chunks behind this one may fit
	l.q.scheduler.dispatchLocked(now)
	return context.Cause(ctx)
}
