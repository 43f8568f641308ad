package pools

import (
	"context"
	"errors"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
)

// callTime bounds a client's call.
const callTime = 10 * time.Second

// Put makes a pool, or changes and renews the pool of the name. It returns the pool as it is then.
func (k *Keeper) Put(ctx context.Context, s lease.Spec) (*lease.Pool, *errs.Error) {
	models := k.opt.Models
	if models == nil {
		models = func(id string) (string, bool) { return id, true }
	}
	if e := check(&s, k.opt.Limits, k.opt.Lanes, models); e != nil {
		return nil, e
	}
	made := false
	v, err := k.call(ctx, func(t *lease.Table) (bool, *errs.Error) {
		var e *errs.Error
		made, e = put(t, s, k.opt.Limits)
		return true, e
	})
	if err != nil {
		return nil, err
	}
	event := "renewed"
	if made {
		event = "created"
	}
	k.events.WithLabelValues(event).Inc()
	if p := v.Table.Find(s.Name); p != nil {
		return p, nil
	}
	return &lease.Pool{Spec: s, Created: v.Now(), Renewed: v.Now()}, nil // it was deleted at once
}

// Renew makes a pool live on.
func (k *Keeper) Renew(ctx context.Context, name string) *errs.Error {
	_, err := k.call(ctx, func(t *lease.Table) (bool, *errs.Error) {
		p := t.Find(name)
		if p == nil {
			return false, errs.NoSuchPool(name)
		}
		p.Renewed = time.Time{}
		return true, nil
	})
	if err == nil {
		k.events.WithLabelValues("renewed").Inc()
	}
	return err
}

// Delete removes a pool, and gives its workers back.
func (k *Keeper) Delete(ctx context.Context, name string) *errs.Error {
	_, err := k.call(ctx, func(t *lease.Table) (bool, *errs.Error) {
		p := t.Find(name)
		if p == nil {
			return false, errs.NoSuchPool(name)
		}
		t.Remove(func(q *lease.Pool) bool { return q == p })
		return true, nil
	})
	if err == nil {
		k.events.WithLabelValues("deleted").Inc()
	}
	return err
}

// call is update for a client, whose error says what to do.
func (k *Keeper) call(
	ctx context.Context, change func(t *lease.Table) (bool, *errs.Error),
) (lease.View, *errs.Error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	v, err := k.update(ctx, change)
	var refused *errs.Error
	if err == nil || errors.As(err, &refused) {
		return v, refused
	}
	return v, errs.NoPools(err)
}

// Known reports whether the pools were seen. Until then there may be pools that Pools and Find do
// not have.
func (k *Keeper) Known() bool { return k.view.Load().Seen() }

// Pools returns the pools that clients made and that have not expired, the oldest first. They never
// change, and a later call never returns what was before them.
func (k *Keeper) Pools() []*lease.Pool {
	v := k.view.Load()
	now, out := v.Now(), make([]*lease.Pool, 0, len(v.Table.Pools))
	for _, p := range v.Table.Pools {
		if !expired(p, now) {
			out = append(out, p)
		}
	}
	return out
}

// Find returns the pool of a name, in any case, or nil.
func (k *Keeper) Find(name string) *lease.Pool {
	v := k.view.Load()
	if p := v.Table.Find(name); p != nil && !expired(p, v.Now()) {
		return p
	}
	return nil
}
