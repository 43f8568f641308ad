package model

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// State says how far the weights of one catalog entry are loaded.
type State struct {
	Entry   *catalog.Resolved
	State   registry.State
	Failure *Failure // of the last load; nil: it did not fail
	Loaded  *Loaded  // nil: not loaded
}

// Failure describes a failed load in words that clients may see.
type Failure struct {
	errs.LoadFailure
	Cause string // without paths of this machine
}

// Loaded describes the loaded model of an entry, or those of a union together.
type Loaded struct {
	First     bool // the entry is the first of those that share the weights
	Bytes     int64
	Dim       int         // components of a pooled vector
	MaxTokens int         // of one text, for this entry
	Queue     batch.Stats // of all its queues; see Model.stats
}

// States returns the state of every id of the catalog, in catalog order. It loads nothing.
func (h *Host) States() []State {
	v := h.snapshot.Load()
	list := v.catalog.List()
	out, loaded := make([]State, len(list)), h.allLoaded()
	for i, m := range list {
		out[i] = h.state(v, m, loaded)
	}
	return out
}

// StateOf returns the state of one entry. It loads nothing.
func (h *Host) StateOf(m *catalog.Resolved) State {
	return h.state(h.snapshot.Load(), m, h.allLoaded())
}

// known is what a loaded model tells about itself, for every entry that shares it.
type known struct {
	model *Model // only for what never changes: it may be closed by now
	bytes int64
	queue batch.Stats
}

// allLoaded returns the loaded models by weights key.
func (h *Host) allLoaded() map[string]known {
	out := make(map[string]known)
	h.models.Each(func(key string, l *Model) { out[key] = known{l, l.Bytes(), l.stats()} })
	return out
}

func (h *Host) state(v *snapshot, m *catalog.Resolved, loaded map[string]known) State {
	if len(m.Members) > 0 {
		return h.union(v, m, loaded)
	}
	return h.one(v, m, loaded)
}

// one returns the state of an entry with weights of its own.
func (h *Host) one(v *snapshot, m *catalog.Resolved, loaded map[string]known) State {
	key := h.key(m)
	if l, ok := loaded[key]; ok {
		return State{Entry: m, State: registry.Loaded, Loaded: &Loaded{
			First:     m == v.shared[key].first,
			Bytes:     l.bytes,
			Dim:       l.model.weights.Dim,
			MaxTokens: l.model.Limit(m),
			Queue:     l.queue,
		}}
	}
	r := h.models.Get(key)
	s := State{Entry: m, State: r.State}
	if f := r.Failure; f != nil {
		s.Failure = &Failure{
			errs.LoadFailure{Class: f.Class, Attempts: f.Attempts, Permanent: f.Permanent},
			publicCause(f.Err),
		}
	}
	return s
}

// MaxBatchItems returns the number of items at which a batch leaves its queue.
func (h *Host) MaxBatchItems() int {
	if n := h.opt.Batch.MaxRequests; n > 0 {
		return n
	}
	return 64
}
