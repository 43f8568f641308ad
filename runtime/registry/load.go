package registry

import (
	"context"
	"errors"
	"time"

	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/lockorder"
)

// doLoad loads e and wakes all callers that wait for it.
func (r *Registry[M]) doLoad(e *entry[M], load Load[M]) {
	defer r.jobs.Done()
	ctx, cancel := context.WithTimeout(r.ctx, r.opt.Timeout)
	defer cancel()
	lockorder.AssertNoneHeld("a load")
	m, end, err := r.fetchAndPack(ctx, load)
	if p := (*guard.Panic)(nil); errors.As(err, &p) && r.opt.Panicked != nil {
		r.opt.Panicked(e.key, p)
	}
	if err != nil && load.Drop != nil {
		load.Drop()
	}

	r.mu.Lock()
	f := e.flight
	e.flight = nil
	switch {
	case err == nil:
		e.state, e.model, e.failure = Loaded, m, nil
		e.refs = f.waiting
		r.useLocked(e)
		if e.unload {
			e.gone = make(chan struct{})
			if e.refs == 0 {
				r.unloadLocked(e)
			}
		}
	case r.closed:
		e.state, f.err, e.unload = Available, ErrClosed, false
	case errors.Is(err, ErrBusy):
		e.state, f.err, e.unload = Available, ErrLoading, false
	default:
		e.failure = r.Failed(e.failure, err)
		e.state, f.err, e.unload = Failed, e.failure, false
	}
	state := e.state
	close(f.done)
	r.mu.Unlock()
	end()
	r.changed(e.key, state)
}

// fetchAndPack runs the two parts of a load, each in its turn. The caller calls end after it has
// marked the model as loaded, because the next model to be packed must see the memory that this one
// takes.
func (r *Registry[M]) fetchAndPack(ctx context.Context, load Load[M]) (m M, end func(), err error) {
	end = func() {}
	found := false
	if load.Find != nil {
		err = guard.Run(func() (err error) {
			found, err = load.Find(ctx)
			return err
		})
		if err != nil {
			return m, end, err
		}
	}
	if load.Fetch != nil && !found {
		if err := r.fetch(ctx, load.Fetch); err != nil {
			return m, end, err
		}
	}
	if err := acquireToken(ctx, r.packing); err != nil {
		return m, end, err
	}
	end = func() { <-r.packing }
	r.EvictWhileShort()
	pack := func() (err error) {
		m, err = load.Pack(ctx)
		return err
	}
	err = guard.Run(pack)
	for err != nil && r.opt.NoMemory != nil && r.opt.NoMemory(err) && r.EvictOne() {
		err = guard.Run(pack)
	}
	return m, end, err
}

// Fetch runs fetch as it would run a load's Fetch: in its turn, and for at most Options.Timeout.
func (r *Registry[M]) Fetch(ctx context.Context, fetch func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	return r.fetch(ctx, fetch)
}

// fetch waits for a fetch token and holds it while fetch runs. A panic of fetch is its error.
func (r *Registry[M]) fetch(ctx context.Context, fetch func(context.Context) error) error {
	lockorder.AssertNoneHeld("a fetch")
	if err := acquireToken(ctx, r.fetches); err != nil {
		return err
	}
	defer func() { <-r.fetches }()
	return guard.Run(func() error { return fetch(ctx) })
}

// PackAlone runs pack while no model is packed. So no load takes the memory that pack finds free,
// and the next load sees the memory that pack takes. ctx bounds the wait. A panic of pack is its
// error.
func (r *Registry[M]) PackAlone(ctx context.Context, pack func() error) error {
	lockorder.AssertNoneHeld("packing")
	if err := acquireToken(ctx, r.packing); err != nil {
		return err
	}
	defer func() { <-r.packing }()
	return guard.Run(pack)
}

// acquireToken waits until it can put a token into the channel.
func acquireToken(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Failed returns the failure to remember for err. before is the previous failure of the same load,
// or nil; the cooldown doubles with each one.
func (r *Registry[M]) Failed(before *Failure, err error) *Failure {
	f := &Failure{Err: err, Attempts: 1}
	if before != nil {
		f.Attempts = before.Attempts + 1
	}
	f.Class, f.Permanent = r.opt.Classify(err)
	var p *guard.Panic // what a load that panicked held is lost, and would be with each further one
	f.Permanent = f.Permanent || f.Attempts >= r.opt.MaxAttempts || errors.As(err, &p)
	wait, ok := r.opt.Cooldowns[f.Class]
	if !ok {
		wait = r.opt.Cooldown
	}
	for i := 1; i < f.Attempts && wait < r.opt.MaxCooldown; i++ {
		wait *= 2
	}
	f.Until = time.Now().Add(min(wait, r.opt.MaxCooldown))
	return f
}
