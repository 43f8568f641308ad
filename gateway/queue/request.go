package queue

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/fair"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// state tells where a slice is; see the package's comment.
type state uint8

const (
	idle state = iota
	queued
	sent
	stored
	taken
	done
)

// untaken reports whether a slice in this state waits for a worker.
func (s state) untaken() bool { return s == queued || s == sent || s == stored }

// begun reports whether a slice in this state is on its way.
func (s state) begun() bool { return s != idle && s != done }

// slice is a part of a request. Its request's lock guards the fields below the first group.
type slice struct {
	first, end int // items
	bytes      int // of its message, about
	cost       int // of its items, in the line's share
	offload    bool

	state     state
	burying   bool // becomes a dead letter
	fetching  bool // its result is read from the payload store
	alone     bool
	attempt   uint32
	tries     int // publishes of this attempt
	died      []death
	aloneDied int // of died, while nothing else was in them
	seq       uint64
	epoch     uint64 // of the stream, when it was published
	due       time.Time
	began     time.Time     // when it could have been sent
	held      time.Duration // until it was, because others had their turn
	sentAt    time.Time
	storedAt  time.Time
	gaveAt    time.Time // when the broker was asked that first said it had delivered the slice
	takenAt   time.Time
	markedAt  time.Time
	worker    string       // that marked it last
	process   string       // its epoch, "" when it does not tell
	result    *work.Result // without error
	transfers []*transfer
}

// death is a server that ended while it ran a slice. A worker's process runs an attempt that ended
// its server at most once: its mark, however often it is sent, is one death.
type death struct {
	worker, process string
	attempt         uint32
}

// diedOn returns the workers of the deaths. The caller may keep it.
func (s *slice) diedOn() (workers []string) {
	for _, d := range s.died {
		workers = append(workers, d.worker)
	}
	return workers
}

// request is one pending request. Everything that arrives for it is put into its slices under mu.
type request struct {
	id    string
	line  *line
	work  *admit.Work
	item  work.Item  // what all its slices have in common
	items []msgp.Raw // read-only
	bytes int        // of items
	began time.Time  // in the queue
	late  time.Time  // its deadline
	limit time.Duration
	wake  chan struct{} // has an element when there may be something for run to do
	// payloads of slices; written before anything is published
	stored map[int]storedItems

	who    asker
	alias  bool         // the caller's name of the model stands for it
	ticket *fair.Ticket // nil before the line is joined

	mu     sync.Mutex
	slices []slice
	next   int // the first slice that is idle
	open   int // slices that are begun
	left   int // slices below stop that are not done
	stop   int // slices from here on do not count: that of the first failure
	cancel int // slices from here on are to be cancelled; -1: none
	err    error
	over   bool      // it was answered: nothing more is put into it
	placed time.Time // when the last slice was stored for the first time; zero: none was
	keys   []string  // of payloads that are deleted when the request has ended
}

// newRequest returns a pending request. cuts are the slices.
func newRequest(id string, l *line, w *admit.Work, item work.Item, items []msgp.Raw, cuts []slice) *request {
	return &request{
		id: id, line: l, work: w, item: item, items: items, wake: make(chan struct{}, 1), slices: cuts,
		left: len(cuts), stop: len(cuts), cancel: -1,
	}
}

// workItemID returns the id of slice i.
func (r *request) workItemID(i int) string { return r.id + "." + strconv.Itoa(i) }

// index returns the number of a slice.
func (r *request) index(s *slice) int {
	for i := range r.slices {
		if &r.slices[i] == s {
			return i
		}
	}
	panic("queue: internal error: a slice of another request")
}

func (r *request) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// setLocked moves slice s to another state.
func (r *request) setLocked(s *slice, to state, now time.Time) { r.moveLocked(s, to, false, now) }

func (r *request) moveLocked(s *slice, to state, answered bool, now time.Time) {
	from := s.state
	if from == to {
		return
	}
	s.state = to
	r.open += b2i(to.begun()) - b2i(from.begun())
	r.line.move(r, s, from, to, answered, now)
}

// beginLocked takes the next idle slice that may be on its way now, or -1. A slice whose turn comes
// wakes the request.
func (r *request) beginLocked(most int, now time.Time) int {
	n := 0
	if !r.over {
		n = max(min(r.stop-r.next, most-r.open), 0)
	}
	since, ok := r.line.claim(r, n, now)
	if !ok {
		return -1
	}
	s := &r.slices[r.next]
	s.began, s.held = since, now.Sub(since)
	r.next++
	return r.next - 1
}

// finishedLocked reports whether run can return.
func (r *request) finishedLocked() bool { return r.left == 0 }

// storeLocked puts the result of slice i in its place.
func (r *request) storeLocked(i int, res *work.Result, now time.Time) {
	s := &r.slices[i]
	r.moveLocked(s, done, true, now)
	s.result, s.transfers = res, nil
	r.left--
	if r.left == 0 || r.next < r.stop {
		r.notify()
	}
}

// failLocked ends the request with the error of slice i, unless an earlier one has failed. Slices
// after it are given up at once; those before it decide whether it is this error.
func (r *request) failLocked(i int, err error, answered bool, now time.Time) {
	if r.over || i >= r.stop || r.slices[i].state == done {
		return
	}
	r.err = err
	r.moveLocked(&r.slices[i], done, answered, now)
	r.slices[i].transfers = nil
	began := r.next
	for j := i + 1; j < r.stop; j++ {
		s := &r.slices[j]
		if s.state.begun() {
			r.setLocked(s, done, now)
		}
		s.state, s.result, s.transfers = done, nil, nil
	}
	r.stop = i
	r.left = 0
	for j := range i {
		r.left += b2i(r.slices[j].state != done)
	}
	if began > i+1 {
		r.cancel = i + 1
	}
	r.notify()
}

// endSliceLocked is failLocked for a slice of which copies may still be somewhere: they are
// cancelled with the slices after it.
func (r *request) endSliceLocked(i int, err error, now time.Time) {
	if r.over || i >= r.stop || r.slices[i].state == done {
		return
	}
	r.failLocked(i, err, true, now)
	r.cancel = i
}

// endLocked gives up what is not done. It reports whether slices are on their way.
func (r *request) endLocked(now time.Time) (running bool) {
	r.over = true
	for i := range r.slices[:r.next] {
		s := &r.slices[i]
		if s.state.begun() {
			running = true
			r.setLocked(s, done, now)
		}
		s.transfers = nil
	}
	return running
}

// requeueLocked has a slice published again after a pause: as a new attempt, or as the same one
// whose outcome is not known.
func (r *request) requeueLocked(s *slice, again bool, pause time.Duration, now time.Time) {
	if again {
		if s.process != "" { // which may have stored its result and ended before it told
			r.keys = append(r.keys, payload.ResultKey(r.workItemID(r.index(s)), s.attempt, s.process))
		}
		s.attempt++
		s.tries = 0
	}
	s.seq, s.due, s.gaveAt = 0, now.Add(pause), time.Time{}
	r.setLocked(s, queued, now)
}

// takenLocked notes that a worker has a slice.
func (r *request) takenLocked(s *slice, worker, process string, now time.Time) {
	if s.takenAt.IsZero() {
		s.takenAt = now
	}
	if s.state == stored {
		r.line.took(r.who, s.waited(s.storedAt, now), now)
	}
	s.worker, s.process, s.markedAt = worker, process, now
	r.setLocked(s, taken, now)
}

// waited returns for how long a slice waited that was put into the stream and taken then. What is
// published again waited elsewhere before.
func (s *slice) waited(stored, taken time.Time) time.Duration {
	if s.attempt > 0 {
		return taken.Sub(stored)
	}
	return s.held + taken.Sub(stored)
}

// ranLocked notes when a worker took a slice whose result is here, and that ran for a time. A quick
// one has no mark, and a mark comes a little late.
func (r *request) ranLocked(s *slice, ran time.Duration, now time.Time) {
	from := s.storedAt
	if from.IsZero() { // its acknowledgement is on its way
		from = s.began
	}
	at := now.Add(-ran)
	if at.Before(from) {
		at = from
	}
	if s.state == stored || s.state == sent {
		r.line.took(r.who, s.waited(from, at), now)
	}
	if s.takenAt.IsZero() || at.Before(s.takenAt) {
		s.takenAt = at
	}
}

// lateError says what the request was waiting for when its time was up.
func (r *request) lateErrorLocked(connected bool, now time.Time) *errs.Error {
	for i := range r.slices[:r.stop] {
		s := &r.slices[i]
		switch {
		case s.state == done:
		case s.state == taken:
			return errs.Unanswered(s.worker, r.limit)
		case !connected:
			return errs.NotStarted(
				"The queue's broker is away; the request waited "+r.limit.String()+" for it", awayRetry)
		default:
			return errs.NotStarted("No worker took the request within "+r.limit.String()+
				"; it still waited in the queue", r.line.retry(now))
		}
	}
	return errs.Internal(errors.New("queue: a request without pending slices is late"))
}

// awayRetry is the Retry-After of requests that waited for the broker or the payload store.
const awayRetry = 2 * time.Second
