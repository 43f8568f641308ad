package rank

import (
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// MaxWorkers bounds the workers of a lane that a Table holds; heartbeats of more are ignored.
const MaxWorkers = 1024

// Table holds the heartbeats of the other workers of a lane.
type Table struct {
	lane    bus.Lane
	self    string
	workers map[string]*peer
}

// peer is another worker of the lane.
type peer struct {
	seen                                 time.Time
	ready                                bool
	loaded, loading, failed, unsupported map[string]bool
	pending                              map[string]bus.Pending
}

// New returns a table of the worker self's lane.
func New(lane bus.Lane, self string) *Table {
	return &Table{lane: lane, self: self, workers: map[string]*peer{}}
}

// Heartbeat takes a heartbeat. It reports whether the worker is new or changed what it can do, so
// that decisions may change.
func (t *Table) Heartbeat(now time.Time, h *bus.WorkerHeartbeat) (changed bool) {
	lane := bus.Lane{Pool: h.PoolName, Profile: h.MachineProfile, Bundle: h.Bundle}
	if h.Name == t.self || h.Name == "" {
		return false
	}
	old := t.workers[h.Name]
	if h.Terminated || lane != t.lane { // it ends, or serves another lane now
		delete(t.workers, h.Name)
		return old != nil
	}
	if old == nil && len(t.workers) >= MaxWorkers {
		return false
	}
	p := &peer{
		seen: now, ready: h.Ready, loaded: set(h.LoadedModels),
		loading: set(h.LoadingModels), failed: set(h.FailedModels), unsupported: set(h.UnsupportedModels),
	}
	if len(h.Pending) <= bus.MaxHeartbeatModels {
		p.pending = h.Pending
	}
	t.workers[h.Name] = p
	return old == nil || old.ready != p.ready || !equal(old.loaded, p.loaded) ||
		!equal(old.loading, p.loading) || !equal(old.failed, p.failed) ||
		!equal(old.unsupported, p.unsupported)
}

func set(models []string) map[string]bool {
	out := make(map[string]bool, min(len(models), bus.MaxHeartbeatModels))
	for _, m := range models[:min(len(models), bus.MaxHeartbeatModels)] {
		out[m] = true
	}
	return out
}

func equal(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

// Expire removes the workers without a heartbeat for work.WorkerStale and reports whether there
// were any. It is not to be called while there is no connection.
func (t *Table) Expire(now time.Time) (changed bool) {
	for name, p := range t.workers {
		if now.Sub(p.seen) > work.WorkerStale {
			delete(t.workers, name)
			changed = true
		}
	}
	return changed
}

// Reconnected lets all ages count again from now.
func (t *Table) Reconnected(now time.Time) {
	for _, p := range t.workers {
		p.seen = now
	}
}

// Len returns the number of live workers besides oneself.
func (t *Table) Len() int { return len(t.workers) }

// Able reports whether another ready worker of the lane may load the model, or has it.
func (t *Table) Able(model string) bool {
	for _, p := range t.workers {
		if p.ready && !p.failed[model] && !p.unsupported[model] {
			return true
		}
	}
	return false
}

// Other reports whether another ready worker of the lane has the model and is not in died.
func (t *Table) Other(model string, died []string) bool {
	for name, p := range t.workers {
		if p.ready && p.loaded[model] && !slices.Contains(died, name) {
			return true
		}
	}
	return false
}
