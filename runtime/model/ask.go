package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/registry"
)

// Asked says how far a model is loaded.
type Asked struct {
	Loaded      bool
	Loading     bool  // Started, or before; if neither is set the model is being unloaded
	Started     bool  // the load began with this call
	BatchTokens int64 // of one batch, on all devices together; set if Loaded
	MaxTokens   int   // of one text; set if Loaded
}

// Ask says how far the model of a catalog entry is loaded, and begins its load if there is none. It
// waits for nothing, and the load outlives the caller. It is not a use: idle models stay idle.
// Errors are those of Acquire.
func (h *Host) Ask(m *catalog.Resolved) (Asked, error) {
	if err := m.Usable(); err != nil {
		return Asked{}, fmt.Errorf("model: %w", err)
	}
	if len(m.Members) > 0 {
		return h.askAll(m)
	}
	return h.ask(m)
}

// ask is Ask for an entry with weights of its own.
func (h *Host) ask(m *catalog.Resolved) (Asked, error) {
	if l, ok := h.loaded.Load(h.key(m)); ok {
		return l.(*Model).asked(m), nil
	}
	before := h.models.Get(h.key(m)).State
	now, cancel := context.WithCancel(context.Background())
	cancel()
	ref, err := h.models.Acquire(now, h.key(m), h.loader(m))
	switch {
	case err == nil: // it was loaded in between
		defer ref.Release()
		return ref.Model().asked(m), nil
	case errors.Is(err, registry.ErrLoading):
		loading := h.models.Get(h.key(m)).State == registry.Loading
		return Asked{Loading: loading, Started: loading && before != registry.Loading}, nil
	}
	return Asked{}, loadError(m, err)
}

func (l *Model) asked(m *catalog.Resolved) Asked {
	o := l.options
	return Asked{
		Loaded: true, BatchTokens: int64(o.MaxCost) * int64(len(l.host.devices)), MaxTokens: l.Limit(m),
	}
}

// FinishedBatches returns the number of batches that ended since the start, failed ones included,
// and when the last one did.
func (h *Host) FinishedBatches() (n uint64, last time.Time) {
	n, at := h.finished.Load(), h.finishedAt.Load()
	if n == 0 {
		return 0, time.Time{}
	}
	return n, *at
}

// batchDone notes the end of a batch.
func (h *Host) batchDone() {
	now := time.Now()
	h.finishedAt.Store(&now)
	h.finished.Add(1)
}

// SetPinned replaces the ids whose models are never unloaded for memory or idleness, in addition to
// Options.Pinned, and returns how many of them the catalog has. The others count as soon as the
// catalog has them.
func (h *Host) SetPinned(ids []string) int {
	h.swap.Lock()
	defer h.swap.Unlock()
	h.pins = append([]string{}, ids...)
	old := h.snapshot.Load()
	v := *old
	v.pinned = make(map[string]bool, len(ids))
	n := 0
	for _, id := range h.opt.Pinned {
		v.pin(id)
	}
	for _, id := range ids {
		if v.pin(id) {
			n++
		}
	}
	h.snapshot.Store(&v)
	return n
}
