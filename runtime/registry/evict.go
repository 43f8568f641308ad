package registry

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// EvictWhileShort unloads models without references, the least recently used first, while memory is
// short.
func (r *Registry[M]) EvictWhileShort() {
	for r.opt.Short != nil && r.opt.Short() {
		if !r.evict(func(*entry[M]) bool { return true }, 0) {
			return
		}
	}
}

// EvictOne unloads the least recently used model that is idle and has no reference. It waits until
// the model is unloaded, and reports whether there was one. A batch may call it: a model with a
// batch is not idle, so EvictOne never waits for a batch.
func (r *Registry[M]) EvictOne() bool { return r.evict(idle[M], 0) }

// EvictOther is EvictOne, but never unloads the model with the key excluded.
func (r *Registry[M]) EvictOther(excluded string) bool {
	return r.evict(func(e *entry[M]) bool { return e.key != excluded && e.model.Idle() }, 0)
}

func idle[M Model](e *entry[M]) bool { return e.model.Idle() }

// evict unloads the least recently used model that has no reference and is eligible, if more than
// keep models are loaded.
func (r *Registry[M]) evict(eligible func(*entry[M]) bool, keep int) bool {
	r.mu.Lock()
	victim := r.victimLocked(keep, func(e *entry[M]) bool { return e.refs == 0 && eligible(e) })
	if victim == nil {
		r.mu.Unlock()
		return false
	}
	gone := r.unloadLocked(victim)
	r.mu.Unlock()
	lockorder.AssertNoneHeld("waiting for a model to go")
	<-gone
	return true
}

// victimLocked returns the least recently used loaded model that is eligible and not pinned. It
// returns nil if there is none, or if no more than keep models are loaded.
func (r *Registry[M]) victimLocked(keep int, eligible func(*entry[M]) bool) (victim *entry[M]) {
	if r.closed { // Close unloads the remaining models
		return nil
	}
	loaded := 0
	for _, e := range r.entries {
		if e.state != Loaded || e.gone != nil {
			continue
		}
		loaded++
		if (victim == nil || e.used < victim.used) && !r.pinned(e.key) && eligible(e) {
			victim = e
		}
	}
	if loaded <= keep {
		return nil
	}
	return victim
}

func (r *Registry[M]) pinned(key string) bool { return r.opt.Pinned != nil && r.opt.Pinned(key) }

// EvictForLoad unloads one model for a load, and waits until one can be unloaded. At first it
// waits, for at most Options.Patience, until a model becomes unused, or until a model that is
// already being unloaded is gone; if that model is already being closed, Patience does not apply.
// Then it drains the least recently used model: the model gets no new users, and new requests for
// it wait until it is loaded again. So models that are always in use cannot delay a load forever.
// The model with the key excluded, if any, is not unloaded. It returns ErrBusy when the drain takes
// longer than Options.Drain, and false when there is no model to unload.
func (r *Registry[M]) EvictForLoad(ctx context.Context, excluded string) (bool, error) {
	other := func(e *entry[M]) bool { return e.key != excluded }
	patience := time.NewTimer(r.opt.Patience)
	defer patience.Stop()
	for {
		r.mu.Lock()
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		used := r.victimLocked(0, other)
		unloading, ends := r.unloadingLocked()
		r.mu.Unlock()
		if !ends && r.EvictOther(excluded) {
			return true, nil
		}
		if used == nil && unloading == nil {
			return false, nil
		}
		expired := patience.C
		if ends {
			// do not drain another model: this one is already being closed and frees its memory
			// soon
			expired = nil
		}
		select {
		case <-unloading:
			return true, nil
		case <-freed:
		case <-expired:
			return r.drain(ctx, other)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// unloadingLocked returns a channel that closes when a model that is being unloaded is gone; nil if
// there is none. ends: that model has no users left and is being closed.
func (r *Registry[M]) unloadingLocked() (gone chan struct{}, ends bool) {
	for _, e := range r.entries {
		if e.gone != nil && (gone == nil || e.state == Unloading) {
			gone, ends = e.gone, e.state == Unloading
		}
	}
	return gone, ends
}

// drain unloads the least recently used eligible model, when its users are done. It also returns
// true if a model that was already being unloaded is gone first.
func (r *Registry[M]) drain(ctx context.Context, eligible func(*entry[M]) bool) (bool, error) {
	r.mu.Lock()
	unloading, _ := r.unloadingLocked()
	victim := r.victimLocked(0, eligible)
	if victim == nil && unloading == nil {
		r.mu.Unlock()
		return false, nil
	}
	var gone chan struct{}
	if victim != nil {
		gone = make(chan struct{})
		victim.gone = gone
		if victim.refs == 0 {
			r.unloadLocked(victim)
		}
	}
	r.mu.Unlock()
	limit := time.NewTimer(r.opt.Drain)
	defer limit.Stop()
	var err error
	select {
	case <-gone:
		return true, nil
	case <-unloading:
	case <-limit.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// still in use: keep it
	if victim != nil && victim.gone == gone && victim.state == Loaded && !victim.unload {
		victim.gone = nil
		close(gone)
	}
	return err == nil, err
}

// Unload unloads the model of key when its last reference is released. A model that is loading is
// unloaded after the callers that wait for it. Unload cannot be undone. It reports whether a model
// was loaded or loading. If the last load failed, the failure is forgotten, so that the next
// Acquire tries again at once.
func (r *Registry[M]) Unload(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	switch {
	case e == nil:
		return false
	case e.state == Loading:
		e.unload = true
		return true
	case e.state == Failed:
		e.state, e.failure = Available, nil
		return false
	case e.state != Loaded:
		return false
	}
	e.unload = true
	if e.gone == nil {
		e.gone = make(chan struct{})
		if e.refs == 0 {
			r.unloadLocked(e)
		}
	}
	return true
}

// unloadLocked closes e's model, which has no reference left, in a new goroutine. The returned
// channel closes when that is done.
func (r *Registry[M]) unloadLocked(e *entry[M]) <-chan struct{} {
	e.state = Unloading
	if e.gone == nil {
		e.gone = make(chan struct{})
	}
	gone, m := e.gone, e.model
	r.jobs.Add(1)
	go func() {
		defer r.jobs.Done()
		r.changed(e.key, Unloading)
		m.Close()
		r.mu.Lock()
		var none M
		e.model, e.state, e.gone, e.unload = none, Available, nil, false
		// memory was freed, so loads that failed for lack of it may be tried again
		for _, other := range r.entries {
			if other.state == Failed && other.failure.Class == "OOM" {
				other.state, other.failure = Available, nil
			}
		}
		r.mu.Unlock()
		r.changed(e.key, Available)
		close(gone)
	}()
	return gone
}

// Watch starts the monitor, which runs every interval [1 s] until Close. While memory is short, it
// unloads models that are idle and have no reference, the least recently used first, but keeps the
// last loaded model. It also unloads every such model, the last included, that was not used for
// Options.Idle.
func (r *Registry[M]) Watch(interval time.Duration) {
	if interval == 0 {
		interval = time.Second
	}
	r.jobs.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-r.ctx.Done():
				return
			}
			for r.opt.Short != nil && r.opt.Short() && r.evict(idle[M], 1) {
			}
			r.evictIdle()
			if r.opt.Tick != nil {
				r.opt.Tick()
			}
		}
	})
}

// evictIdle unloads every idle model that was not used for Options.Idle.
func (r *Registry[M]) evictIdle() {
	if r.opt.Idle == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.state == Loaded && e.gone == nil && e.refs == 0 && !r.pinned(e.key) &&
			time.Since(e.at) >= r.opt.Idle && e.model.Idle() {
			r.unloadLocked(e)
		}
	}
}

// Bytes returns the total size of the loaded models, including models that are being unloaded.
func (r *Registry[M]) Bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for _, e := range r.entries {
		if e.state == Loaded || e.state == Unloading {
			n += e.model.Bytes()
		}
	}
	return n
}
