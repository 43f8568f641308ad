package fleet

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// The bounds of a fleet, and its times.
const (
	MaxWorkers = 10_000
	maxBytes   = 256 << 20 // of all heartbeats that are kept
	evictAfter = 600 * time.Second
	tick       = 250 * time.Millisecond
	// maxTick is the most by which ages grow between two ticks: more time means that this process
	// did not run, and heartbeats wait to be read.
	maxTick      = 4 * tick
	rebuildEvery = 50 * time.Millisecond
	settleAfter  = work.WorkerHeartbeat + 2*tick
	refusalEvery = 10 * time.Second
)

// Fleet keeps the workers. Its methods are safe for concurrent use.
type Fleet struct {
	log *slog.Logger

	current atomic.Pointer[Snapshot]
	refused atomic.Uint64
	warned  atomic.Int64 // when the last refusal was logged, in nanoseconds since the epoch
	wake    chan struct{}

	mu        sync.Mutex
	connected bool
	age       time.Duration // how long this process ran and was connected, at ticked
	ticked    time.Time
	workers   map[string]*entry
	bytes     int64
	dirty     bool // numbers changed since the snapshot
}

// entry is a worker and the age of the fleet at its last heartbeat.
type entry struct {
	*Worker
	seen time.Duration
}

// New returns a fleet without workers, which is not connected. log gets refused heartbeats and
// workers that come and go.
func New(log *slog.Logger) *Fleet {
	f := &Fleet{log: log, wake: make(chan struct{}, 1), workers: map[string]*entry{}, ticked: time.Now()}
	f.current.Store(&Snapshot{changed: make(chan struct{})})
	return f
}

// Snapshot returns what is known now. It costs one atomic read.
func (f *Fleet) Snapshot() *Snapshot { return f.current.Load() }

// Subscribe subscribes to the heartbeats of all workers. The subscription ends with c.
func (f *Fleet) Subscribe(c *nats.Conn) (*nats.Subscription, error) {
	return c.Subscribe(bus.HealthPrefix+"*", func(m *nats.Msg) { f.Heartbeat(m.Subject, m.Data) })
}

// Run lets workers grow old, and makes snapshots of changed numbers, until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var soon <-chan time.Time // of the snapshot of changed numbers; nil: none is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.grow()
		case <-f.wake:
			if soon == nil {
				soon = time.After(rebuildEvery)
			}
		case <-soon:
			soon = nil
			f.mu.Lock()
			if f.dirty {
				f.publish()
			}
			f.mu.Unlock()
		}
	}
}

// Connected says that there is a connection to the broker. The ages of live workers begin again.
func (f *Fleet) Connected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	if f.connected {
		return
	}
	f.connected = true
	for _, e := range f.workers {
		if e.Live {
			e.seen = f.age
		}
	}
	f.publish()
}

// Disconnected says that the connection to the broker is lost. No age grows until Connected.
func (f *Fleet) Disconnected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	if f.connected {
		f.connected = false
		f.publish()
	}
}

// Heartbeat takes a message of a worker. What is no heartbeat is counted and dropped. A change of
// what a worker can do is in the next Snapshot; a change of its numbers alone follows within
// rebuildEvery, if Run runs.
func (f *Fleet) Heartbeat(subject string, data []byte) {
	w, err := parse(subject, data)
	if err != nil {
		f.refuse(subject, err.Error())
		return
	}
	switch what, why := f.take(w); {
	case why != "":
		f.refuse(subject, why)
	case what != "":
		f.log.Info(what, "worker", w.ID, "lane", w.Lane.String(), "ready", w.Heartbeat.Ready)
	}
}

// take keeps a worker's heartbeat, or returns why not. what says what changed, "" for no change
// that is worth a line in the log.
func (f *Fleet) take(w *Worker) (what, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	old := f.workers[w.ID]
	if w.Heartbeat.Terminated {
		if old == nil {
			return "", ""
		}
		f.remove(old)
		f.publish()
		return "a worker has ended", ""
	}
	if old == nil && len(f.workers) >= MaxWorkers && !f.makeRoom() {
		return "", "there are as many live workers as a gateway keeps"
	}
	grows := w.bytes
	if old != nil {
		grows -= old.bytes
	}
	if f.bytes+grows > maxBytes {
		return "", "the heartbeats of all workers take as much memory as a gateway gives them"
	}
	f.bytes += grows
	w.Live, w.Came = true, time.Now()
	w.Since = w.Came
	if sent := w.Heartbeat.SentAtMS; sent != 0 {
		w.Skew = time.UnixMilli(sent).Sub(w.Came)
	}
	if old != nil {
		w.follow(old.Worker)
	}
	f.workers[w.ID] = &entry{w, f.age}
	switch {
	case old == nil || !old.Live || old.Ready() != w.Ready() || old.Lane != w.Lane || old.Home != w.Home:
		f.publish()
		return "a worker is there", ""
	case w.shared && !old.shared:
		f.publish()
		return "two processes have one worker id; give each its own", ""
	case old.Heartbeat.Epoch != w.Heartbeat.Epoch:
		f.publish()
		if !w.shared {
			what = "a worker was started again"
		}
		return what, ""
	case !old.sameModels(w):
		f.publish()
	default:
		f.dirty = true
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return "", ""
}

// sameModels reports whether two heartbeats of a worker list the same models.
func (w *Worker) sameModels(o *Worker) bool {
	a, b := &w.Heartbeat, &o.Heartbeat
	return slices.Equal(a.LoadedModels, b.LoadedModels) && slices.Equal(a.LoadingModels, b.LoadingModels) &&
		slices.Equal(a.FailedModels, b.FailedModels) &&
		slices.Equal(a.UnsupportedModels, b.UnsupportedModels) && w.servesNothing == o.servesNothing &&
		a.BundleConfigHash == b.BundleConfigHash && a.BundleDocumentsHash == b.BundleDocumentsHash
}

// refuse counts a heartbeat that was not accepted, and logs one of them every refusalEvery.
func (f *Fleet) refuse(subject, why string) {
	n := f.refused.Add(1)
	now, last := time.Now().UnixNano(), f.warned.Load()
	if now-last >= int64(refusalEvery) && f.warned.CompareAndSwap(last, now) {
		f.log.Warn("a heartbeat was refused", "subject", clip(subject), "reason", why, "refused", n)
	}
}

// advance lets the fleet's age grow to now. The caller holds mu.
func (f *Fleet) advance() {
	now := time.Now()
	if f.connected {
		f.age += min(max(now.Sub(f.ticked), 0), maxTick)
	}
	f.ticked = now
}

// grow takes workers whose heartbeats are missing out of their lanes, and forgets those that have
// been silent for evictAfter.
func (f *Fleet) grow() {
	for _, w := range f.silent() {
		f.log.Warn("a worker is silent", "worker", w.ID, "lane", w.Lane.String())
	}
}

func (f *Fleet) silent() (gone []*Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	forgotten := false
	for _, e := range f.workers {
		switch age := f.age - e.seen; {
		case age > evictAfter:
			f.remove(e)
			forgotten = true
		case age > work.WorkerStale && e.Live:
			w := *e.Worker
			w.Live, w.Since = false, time.Now()
			e.Worker = &w
			gone = append(gone, &w)
		}
	}
	settled := f.age >= settleAfter && !f.current.Load().Settled
	if forgotten || settled || len(gone) > 0 {
		f.publish()
	}
	return gone
}

// makeRoom forgets the worker that has been silent the longest. It returns false if all are live.
func (f *Fleet) makeRoom() bool {
	var oldest *entry
	for _, e := range f.workers {
		if !e.Live && (oldest == nil || e.seen < oldest.seen || e.seen == oldest.seen && e.ID < oldest.ID) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	f.remove(oldest)
	return true
}

func (f *Fleet) remove(e *entry) {
	delete(f.workers, e.ID)
	f.bytes -= e.bytes
}

// publish makes the next snapshot. The caller holds mu.
func (f *Fleet) publish() {
	f.dirty = false
	s := &Snapshot{
		Connected: f.connected, Settled: f.age >= settleAfter,
		Refused: f.refused.Load(), lanes: map[bus.Lane]*Lane{}, lost: map[bus.Lane]time.Time{},
		Workers: make([]*Worker, 0, len(f.workers)), changed: make(chan struct{}),
	}
	for _, e := range f.workers {
		s.Workers = append(s.Workers, e.Worker)
	}
	slices.SortFunc(s.Workers, func(a, b *Worker) int { return strings.Compare(a.ID, b.ID) })
	for _, w := range s.Workers {
		if until := w.lostUntil(); until.After(s.lost[w.Lane]) {
			s.lost[w.Lane] = until
		}
		if !w.Live {
			continue
		}
		l := s.lanes[w.Lane]
		if l == nil {
			l = &Lane{ID: w.Lane}
			s.lanes[w.Lane] = l
			s.Lanes = append(s.Lanes, l)
		}
		l.Workers = append(l.Workers, w)
		l.Items = add(l.Items, w.Heartbeat.QueueDepth)
		if w.Ready() {
			l.Ready = append(l.Ready, w)
			l.FreeCredit = add(l.FreeCredit, max(w.Heartbeat.FreeCredit, 0))
		}
	}
	slices.SortFunc(s.Lanes, func(a, b *Lane) int { return a.ID.Compare(b.ID) })
	close(f.current.Swap(s).changed)
}
