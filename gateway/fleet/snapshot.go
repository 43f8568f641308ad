package fleet

import (
	"math"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// Worker is what a worker's last heartbeat says. It never changes.
type Worker struct {
	ID        string
	Lane      bus.Lane // that it serves now
	Home      bus.Lane // that it serves while no client's pool has it
	Live      bool     // its heartbeat is fresh
	Heartbeat bus.WorkerHeartbeat
	Came      time.Time // when the heartbeat was taken
	Since     time.Time // when this process became what it is: ready, not ready or not live
	Began     time.Time // when the first of its process was, if it took another one's place; or zero
	// Skew is how far the worker's clock is before the gateway's, less the heartbeat's way; 0 where
	// the worker does not tell its time.
	Skew time.Duration

	before string // the epoch of the process before this one
	shared bool   // two processes have its id

	loaded, loading, failed, unsupported map[string]struct{}
	servesNothing                        bool  // it lists more unsupported models than may be told
	bytes                                int64 // that it takes here, about
}

// workerBytes is what a worker takes beside its heartbeat, and entryBytes what an entry of a list
// or a map takes beside its text.
const (
	workerBytes = 1 << 10
	entryBytes  = 128
)

// Ready reports whether the worker is live and takes work.
func (w *Worker) Ready() bool { return w.Live && w.Heartbeat.Ready }

// Epoch returns the epoch of the worker's process, or "" when it is not known which process has the
// worker's id: the worker is not live or tells none, or two processes have the id.
func (w *Worker) Epoch() string {
	if !w.Live || w.shared {
		return ""
	}
	return w.Heartbeat.Epoch
}

// follow notes which process was there before. An epoch that comes back is that of a process that
// had not ended: until a third one comes, the id belongs to two of them.
func (w *Worker) follow(old *Worker) {
	w.before, w.shared, w.Began = old.before, old.shared, old.Began
	if old.Live && old.Ready() == w.Ready() && old.Heartbeat.Epoch == w.Heartbeat.Epoch {
		w.Since = old.Since
	}
	if epoch := w.Heartbeat.Epoch; epoch != old.Heartbeat.Epoch {
		w.before, w.shared = old.Heartbeat.Epoch, epoch == old.before && epoch != ""
		if w.Began = w.Came; w.shared {
			w.Began = time.Time{}
		}
	}
}

// Loaded reports whether the worker has the model of an id loaded.
func (w *Worker) Loaded(model string) bool { return has(w.loaded, model) }

// Loading reports whether the worker loads the model.
func (w *Worker) Loading(model string) bool { return has(w.loading, model) }

// Failed reports whether the worker's last load of the model failed.
func (w *Worker) Failed(model string) bool { return has(w.failed, model) }

// Unsupported reports whether the worker says that it can never run the model.
func (w *Worker) Unsupported(model string) bool { return w.servesNothing || has(w.unsupported, model) }

// Pending returns the work of the model that the worker has pulled and not answered.
func (w *Worker) Pending(model string) bus.Pending { return w.Heartbeat.Pending[model] }

func has(set map[string]struct{}, id string) bool {
	_, ok := set[id]
	return ok
}

// Lane is a lane with workers. It never changes. The nil Lane has none.
type Lane struct {
	ID      bus.Lane
	Workers []*Worker // live, ordered by id
	Ready   []*Worker // those of them that take work

	FreeCredit int64 // tokens that the servers of the ready workers would take now
	Items      int   // that the live workers have pulled and not answered
}

// Empty reports whether the lane has no ready worker.
func (l *Lane) Empty() bool { return l == nil || len(l.Ready) == 0 }

// Credit returns the free credit of the ready workers.
func (l *Lane) Credit() int64 {
	if l == nil {
		return 0
	}
	return l.FreeCredit
}

// Warm returns the ready workers that have the model loaded, ordered by id.
func (l *Lane) Warm(model string) []*Worker {
	return l.where(func(w *Worker) bool { return w.Loaded(model) && !w.Unsupported(model) })
}

// Able returns the ready workers that may run the model: those that list it neither as failed nor
// as unsupported, ordered by id.
func (l *Lane) Able(model string) []*Worker {
	return l.where(func(w *Worker) bool { return w.able(model) })
}

func (w *Worker) able(model string) bool { return !w.Failed(model) && !w.Unsupported(model) }

// Runs reports whether a ready worker may run the model.
func (l *Lane) Runs(model string) bool {
	return l != nil && slices.ContainsFunc(l.Ready, func(w *Worker) bool { return w.able(model) })
}

func (l *Lane) where(keep func(*Worker) bool) (out []*Worker) {
	if l == nil {
		return nil
	}
	for _, w := range l.Ready {
		if keep(w) {
			out = append(out, w)
		}
	}
	return out
}

// Hashes tell which configuration of a bundle there is. "" is not known, and is not compared.
type Hashes struct {
	Config    string // its config hash, which leaves out most of the models' documents
	Documents string // the hash of all that they say
}

// Has reports whether nothing that is known tells the worker's configuration from that of hashes.
func (w *Worker) Has(h Hashes) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	return same(h.Config, w.Heartbeat.BundleConfigHash) &&
		same(h.Documents, w.Heartbeat.BundleDocumentsHash)
}

// Unsupported reports whether a live worker of the lane that has the configuration of hashes says
// that it can never run one of some models. A worker that tells no hash counts, and every worker
// does where none is known. One of another configuration does not: it may be about to get this one,
// or to be replaced.
func (l *Lane) Unsupported(hashes Hashes, models ...string) bool {
	if l == nil {
		return false
	}
	for _, w := range l.Workers {
		if !w.Has(hashes) {
			continue
		}
		if slices.ContainsFunc(models, w.Unsupported) {
			return true
		}
	}
	return false
}

// Pending returns the work of the model that the live workers have pulled and not answered.
func (l *Lane) Pending(model string) (sum bus.Pending) {
	if l == nil {
		return sum
	}
	for _, w := range l.Workers {
		p := w.Pending(model)
		sum.Items, sum.Tokens = add(sum.Items, p.Items), add(sum.Tokens, p.Tokens)
	}
	return sum
}

// add returns a + b of numbers that are not negative, or the greatest number if that is above it.
func add[T int | int64](a, b T) T {
	if sum := a + b; sum >= a {
		return sum
	}
	return T(math.MaxInt)
}

// Snapshot is all that is known of the workers at one time. It never changes.
type Snapshot struct {
	// Connected is false while the broker is away. The workers are then those of before.
	Connected bool
	// Settled is false until this process has been connected for longer than the time between two
	// heartbeats: a lane without workers may have some that it has not heard of yet.
	Settled bool
	Lanes   []*Lane   // with live workers, ordered by pool, profile and bundle
	Workers []*Worker // also those that are not live any more, ordered by id
	Refused uint64    // heartbeats that were not accepted, since the start

	lanes   map[bus.Lane]*Lane
	lost    map[bus.Lane]time.Time // until when a lane counts as one that lost a worker
	changed chan struct{}
}

// Lane returns a lane, or nil if it has no live worker.
func (s *Snapshot) Lane(id bus.Lane) *Lane { return s.lanes[id] }

// lostFor is how long a worker that stopped or was started again may have slices that it will never
// mark: its open pulls last for 8 s (sidecar/pull), and the broker is asked about them twice.
const lostFor = 12 * time.Second

// Lost reports whether a worker of a lane was lost a moment before now: it is silent, or another
// process took its place. One that said that it ends was not lost.
func (s *Snapshot) Lost(id bus.Lane, now time.Time) bool {
	return now.Before(s.lost[id])
}

// lostUntil returns until when a worker counts as lost, or zero.
func (w *Worker) lostUntil() time.Time {
	switch {
	case !w.Live:
		return w.Came.Add(work.WorkerStale + lostFor)
	case !w.Began.IsZero():
		return w.Began.Add(lostFor)
	}
	return time.Time{}
}

// Worker returns the worker of an id, or nil if it is unknown.
func (s *Snapshot) Worker(id string) *Worker {
	lo, hi := 0, len(s.Workers)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.Workers[mid].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Workers) && s.Workers[lo].ID == id {
		return s.Workers[lo]
	}
	return nil
}

// Changed returns a channel that closes when there is a newer snapshot.
func (s *Snapshot) Changed() <-chan struct{} { return s.changed }
