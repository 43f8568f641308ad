package registry

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Relieve unloads the least recently used models that nobody holds, while memory is short.
func (r *Registry[M]) Relieve() {
	for r.opt.Short != nil && r.opt.Short() {
		if !r.evict(func(*entry[M]) bool { return true }, 0) {
			return
		}
	}
}

// EvictOne unloads the least recently used model that nobody holds and that is idle, waits until it
// is gone, and reports whether there was one. A batch may call it: what waits for a batch is not
// idle, so nobody waits in a circle.
func (r *Registry[M]) EvictOne() bool { return r.evict(idle[M], 0) }

// EvictOther is EvictOne but for the model of a key.
func (r *Registry[M]) EvictOther(spare string) bool {
	return r.evict(func(e *entry[M]) bool { return e.key != spare && e.model.Idle() }, 0)
}

func idle[M Model](e *entry[M]) bool { return e.model.Idle() }

// evict unloads the least recently used of the models that nobody holds and that suit, if more than
// keep are loaded.
func (r *Registry[M]) evict(suits func(*entry[M]) bool, keep int) bool {
	r.mu.Lock()
	victim := r.victimLocked(keep, func(e *entry[M]) bool { return e.refs == 0 && suits(e) })
	if victim == nil {
		r.mu.Unlock()
		return false
	}
	gone := r.unloadLocked(victim)
	r.mu.Unlock()
	lockorder.None("waiting for a model to go")
	<-gone
	return true
}

// victimLocked is the least recently used of the loaded models that suit and are not pinned; nil
// when there is none, or when no more than keep are loaded.
func (r *Registry[M]) victimLocked(keep int, suits func(*entry[M]) bool) (victim *entry[M]) {
	if r.closed { // Close unloads what is left
		return nil
	}
	loaded := 0
	for _, e := range r.entries {
		if e.state != Loaded || e.gone != nil {
			continue
		}
		loaded++
		if (victim == nil || e.used < victim.used) && !r.pinned(e.key) && suits(e) {
			victim = e
		}
	}
	if loaded <= keep {
		return nil
	}
	return victim
}

func (r *Registry[M]) pinned(key string) bool { return r.opt.Pinned != nil && r.opt.Pinned(key) }

// EvictForLoad is EvictOne for a load, which can wait: at first for a model that goes already, or
// to lose its last user; then the least recently used gets no new users, and its requests wait for
// it to be loaded again, so that a load is not kept waiting by models that are always in use. The
// model of the key spare, if any, is left alone. It reports ErrBusy when that takes too long, and
// false when there is nothing to unload.
func (r *Registry[M]) EvictForLoad(ctx context.Context, spare string) (bool, error) {
	other := func(e *entry[M]) bool { return e.key != spare }
	patience := time.NewTimer(r.opt.Patience)
	defer patience.Stop()
	for {
		r.mu.Lock()
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		used := r.victimLocked(0, other)
		going, ends := r.goingLocked()
		r.mu.Unlock()
		if !ends && r.EvictOther(spare) {
			return true, nil
		}
		if used == nil && going == nil {
			return false, nil
		}
		hurry := patience.C
		if ends {
			hurry = nil // another would be drained for what comes free by itself
		}
		select {
		case <-going:
			return true, nil
		case <-freed:
		case <-hurry:
			return r.drain(ctx, other)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// goingLocked is closed when a model that goes is gone; nil when none does. ends: nobody uses it
// any more, it is being closed.
func (r *Registry[M]) goingLocked() (gone chan struct{}, ends bool) {
	for _, e := range r.entries {
		if e.gone != nil && (gone == nil || e.state == Unloading) {
			gone, ends = e.gone, e.state == Unloading
		}
	}
	return gone, ends
}

// drain unloads the least recently used of the models that suit when its users are done. One that
// goes already may be gone first.
func (r *Registry[M]) drain(ctx context.Context, suits func(*entry[M]) bool) (bool, error) {
	r.mu.Lock()
	going, _ := r.goingLocked()
	victim := r.victimLocked(0, suits)
	if victim == nil && going == nil {
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
	case <-going:
	case <-limit.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if victim != nil && victim.gone == gone && victim.state == Loaded && !victim.unload { // still in use: it stays
		victim.gone = nil
		close(gone)
	}
	return err == nil, err
}

// Unload unloads the model of key once its last reference is released; one that is loading, after
// those who wait for it. Nothing takes that back. It reports whether there was one. A failed load
// is forgotten, so that the next Acquire tries again at once.
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

// unloadLocked closes e's model, which has no reference left, in a goroutine; the returned channel
// closes when that is done.
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
		for _, other := range r.entries { // memory came free: what failed for lack of it may be tried again
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

// Watch starts the monitor, which looks every interval [1 s] until Close: while memory is short it
// unloads the least recently used models that nobody uses, but the last; and it unloads, the last
// included, what was not used for the time of Options.Idle.
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
		}
	})
}

// evictIdle unloads every model that has not been used for too long.
func (r *Registry[M]) evictIdle() {
	if r.opt.Idle == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.state == Loaded && e.gone == nil && e.refs == 0 && !r.pinned(e.key) && time.Since(e.at) >= r.opt.Idle && e.model.Idle() {
			r.unloadLocked(e)
		}
	}
}

// Bytes is what the loaded models take together, those that go included until they are gone.
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
