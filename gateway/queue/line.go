package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/gateway/fair"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
)

// line is the work of one model in one lane, which has a subject and a consumer of its own. Its
// lock is taken after a request's and no other is taken under it.
type line struct {
	lane    bus.Lane
	home    bus.Lane // whose workers serve lane, for labels: clients choose the names of their pools
	model   string   // its id
	subject string
	demand  string
	pool    *pool

	// open is set while new slices may be published at once: the consumer is there, and nothing
	// waits to be published again.
	open atomic.Bool

	mu         sync.Mutex
	prepared   bool // stream and consumer are there, as far as is known
	preparing  bool
	checking   bool
	failures   int       // of preparing, in a row
	retryAt    time.Time // of preparing
	checkAt    time.Time // of the consumer
	checked    consumerCheck
	fullUntil  time.Time  // the stream refused work a moment ago
	requests   int        // that use the line
	bytes      int        // of the items of those that are not answered
	usedAt     time.Time  // when the last of them ended
	untaken    int        // items that are on their way
	unanswered int        // items, the untaken ones among them
	share      fair.Share // of the slices that are not on their way
	window     window     // the room of share; without a size there is no bound
	tenants    map[asker]*tally
	waiting    int              // slices that wait to be published
	waiters    map[*request]int // those slices, by request
	sent       int              // slices that are published and not acknowledged
	sentBytes  int              // of them
	meter      meter
	refusals   map[time.Duration]*inference.Refusal // by Retry-After, a few seconds
}

// consumerCheck is what the broker said of the line's consumer.
type consumerCheck struct {
	at    time.Time // when it was asked; zero: never
	empty bool      // nothing pending and nothing unacknowledged
	floor uint64    // all messages up to it were acknowledged
	gave  uint64    // all messages up to it were delivered to somebody
}

// pool is what is known of a pool's work stream.
type pool struct {
	name string

	mu      sync.Mutex
	epoch   uint64 // grows with each new stream; 0: none was seen
	created time.Time
	polling bool
	pollAt  time.Time
	lastAt  time.Time // when last was asked
	last    uint64    // sequence
}

// poolState is a copy of what decides whether a slice was lost.
type poolState struct {
	epoch  uint64
	lastAt time.Time
	last   uint64
}

func (p *pool) state() poolState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return poolState{p.epoch, p.lastAt, p.last}
}

// saw notes what the broker said of the stream when it was asked at a time. It reports whether the
// stream is another one than before.
func (p *pool) saw(s streamState, asked time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.Created.Equal(p.created) || p.epoch == 0 {
		p.epoch++
		p.created, changed = s.Created, p.epoch > 1
	}
	if asked.After(p.lastAt) {
		p.lastAt, p.last = asked, s.Last
	}
	return changed
}

// recountLocked sets open by the rest.
func (l *line) recountLocked() { l.open.Store(l.prepared && l.waiting == 0) }

// unprepare forgets that the consumer is there.
func (l *line) unprepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prepared = false
	l.recountLocked()
}

// move accounts for a slice of a request that goes from one state to another. answered says that it
// has a result.
func (l *line) move(r *request, s *slice, from, to state, answered bool, now time.Time) {
	n := s.end - s.first
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.untaken
	waits := n * (b2i(to.untaken()) - b2i(from.untaken()))
	l.untaken += waits
	l.tallyLocked(r.who).untaken += waits
	if from.begun() && !to.begun() && r.ticket != nil {
		l.share.Return(r.ticket, s.cost)
	}
	l.unanswered += n * (b2i(to.begun()) - b2i(from.begun()))
	if d := b2i(to == queued) - b2i(from == queued); d != 0 {
		l.waitersLocked(r, d)
	}
	d := b2i(to == sent) - b2i(from == sent)
	l.sent, l.sentBytes = l.sent+d, l.sentBytes+d*s.bytes
	if answered {
		l.meter.done(n, now)
	}
	if before > 0 && l.backlogLocked() == 0 {
		l.meter.empty(now)
	}
	l.recountLocked()
}

// waitersLocked counts slices of a request that wait to be published.
func (l *line) waitersLocked(r *request, n int) {
	if l.waiters == nil {
		l.waiters = map[*request]int{}
	}
	l.waiting += n
	if l.waiters[r] += n; l.waiters[r] == 0 {
		delete(l.waiters, r)
	}
}

// took notes that a worker took a slice of somebody that waited for a time.
func (l *line) took(who asker, waited time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tallyLocked(who)
	t.lag, t.takenAt = waited, now
	for key, other := range l.tenants {
		if other.untaken > 0 || l.share.WaitingOf(key.tenant, key.priority.Rank()) > 0 {
			waited = max(waited, other.waited(now))
		}
	}
	l.meter.taken(waited, now)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// waitLocked predicts how long an item that comes now waits to be taken, and returns false if that
// is unknown.
func (l *line) waitLocked(now time.Time) (time.Duration, bool) {
	rate, n := l.meter.rate(now), l.backlogLocked()
	if n == 0 || rate <= 0 {
		return 0, false
	}
	return seconds(float64(n) / rate), true
}

// refuse returns why new work of somebody cannot begin now: the stream was full a moment ago, or
// what waits takes longer than limit. nil: it can begin. An empty queue admits whatever comes, and
// so does one whose rate is not known.
func (l *line) refuse(who asker, limit time.Duration, now time.Time) *errs.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuseLocked(who, limit, now)
}

func (l *line) refuseLocked(who asker, limit time.Duration, now time.Time) *errs.Error {
	if now.Before(l.fullUntil) {
		return l.fullLocked(now)
	}
	wait, waited, known := l.waitOfLocked(who, now)
	limit = who.limit(limit)
	if known && limit >= 0 && wait > limit && waited > limit/waitedShare {
		return errs.SlowQueue(limit, retryAfter(wait, limit))
	}
	return nil
}

// waitedShare is the part of the limit that the slices must have waited which are taken now, before
// what waits behind them is believed to wait for long. A flood of ten times what the workers can do
// has that part behind it when its last slice will wait for the limit.
const waitedShare = 10

// fullLocked returns the error of a stream that takes no more work of the line.
func (l *line) fullLocked(now time.Time) *errs.Error {
	wait, _ := l.waitLocked(now)
	return errs.NotStarted("Queue full: the model's queue takes no more work now", retryAfter(wait, 0))
}

// full notes that the stream refused work, and returns the error of it.
func (l *line) full(now time.Time) *errs.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fullUntil = now.Add(fullBackoff)
	return l.fullLocked(now)
}

// retry returns the Retry-After of a request that waited in vain.
func (l *line) retry(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait, _ := l.waitLocked(now)
	return retryAfter(wait, 0)
}

// maxRetry bounds a Retry-After: a rate that was measured while a worker or the broker was away
// must not keep clients away for longer than they need.
const maxRetry = 10 * time.Second

// retryAfter returns the whole seconds until a wait has fallen to half of its limit. A client that
// returns then finds room, and the workers still have work.
func retryAfter(wait, limit time.Duration) time.Duration {
	d := min(max(wait-limit/2, time.Second), maxRetry)
	return (d + time.Second - 1).Truncate(time.Second)
}

// refusal returns refuse's error prepared for many callers.
func (l *line) refusal(who asker, limit time.Duration, asRetry bool, now time.Time) *inference.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.refuseLocked(who, limit, now)
	if e == nil {
		return nil
	}
	key := e.RetryAfter + time.Duration(who.priority.Rank()) // another text for each
	if now.Before(l.fullUntil) {
		key = e.RetryAfter + fair.Ranks
	}
	if asRetry {
		key = -key
	}
	r := l.refusals[key]
	if r == nil {
		if l.refusals == nil {
			l.refusals = map[time.Duration]*inference.Refusal{}
		}
		if asRetry {
			e = provisioning(e)
		}
		r = inference.Refuse(e)
		l.refusals[key] = r // a few for each second up to maxRetry
	}
	return r
}

// provisioning returns e with the code that SDKs retry which fail on QUEUE_FULL.
func provisioning(e *errs.Error) *errs.Error {
	other := *e
	other.Code = errs.Provisioning
	return &other
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e6) * float64(time.Second)) }

// weigh counts n bytes of items more, or less.
func (l *line) weigh(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += n
}

// bytesPerToken is how many bytes of a text are a token, about. A gateway has no tokenizer.
const bytesPerToken = 4

// State is what a gateway knows of its work for one model in one lane.
type State struct {
	Lane                bus.Lane
	Home                bus.Lane // the operator's lane whose workers serve Lane
	Model               string
	Untaken, Unanswered int     // items
	Rate                float64 // items answered in a second while others wait; 0: not known
	Tokens              float64 // of requests that are not answered, estimated
}

// States returns the state of every model in every lane that was used lately, in no order.
func (q *Queue) States() []State {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]State, 0, len(q.lines))
	for _, l := range q.lines {
		l.mu.Lock()
		waiting := l.share.Waiting()
		out = append(out,
			State{l.lane, l.home, l.model, l.untaken + waiting, l.unanswered + waiting, l.meter.rate(now),
				float64(l.bytes) / bytesPerToken})
		l.mu.Unlock()
	}
	return out
}
