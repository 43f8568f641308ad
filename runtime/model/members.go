package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/registry"
)

// This file has the unions: entries that answer with the models of others, which are loaded, shared
// and unloaded under their own weights keys. A union holds nothing itself.

// partsOf returns the entries whose models answer for m: m itself, or the members of a union, each
// with the weights of the catalog's own entry for its repository, if there is one.
func (v *snapshot) partsOf(m *catalog.Resolved) []*catalog.Resolved {
	if len(m.Members) == 0 {
		return []*catalog.Resolved{m}
	}
	if parts := v.parts[m]; parts != nil {
		return parts
	}
	return v.unite(m) // an entry of an earlier catalog
}

// unite returns the members of m as partsOf does.
func (v *snapshot) unite(m *catalog.Resolved) []*catalog.Resolved {
	parts := make([]*catalog.Resolved, len(m.Members))
	for i, member := range m.Members {
		parts[i] = member
		for _, own := range v.catalog.List() { // bases come before their variants
			if own.Offers(member) {
				parts[i] = member.With(own)
				break
			}
		}
	}
	return parts
}

// Members returns the entries of a union's members as this server loads them, in order.
func (h *Host) Members(m *catalog.Resolved) []*catalog.Resolved { return h.snapshot.Load().partsOf(m) }

// AcquireMembers returns a Use of each of the members of a union. It begins the loads of all that
// are not loaded, and waits for them together for at most Options.LoadWait, holding those that it
// has: what else needs their memory waits no longer than that. An error names the member, and then
// none is in use.
func (h *Host) AcquireMembers(
	ctx context.Context, m *catalog.Resolved, members []*catalog.Resolved,
) ([]Use, error) {
	if err := h.lackFor(m, members); err != nil {
		return nil, err
	}
	for _, one := range members {
		_, _ = h.ask(one) // begins its load; what fails is told below
	}
	wait, cancel := context.WithTimeout(ctx, h.opt.LoadWait)
	defer cancel()
	uses := make([]Use, 0, len(members))
	for _, one := range members {
		ref, err := h.acquire(ctx, wait, one)
		if err != nil {
			for _, u := range uses {
				u.Done()
			}
			return nil, OfMember(m, one, err)
		}
		uses = append(uses, Use{Model: ref.Model(), ref: ref})
	}
	return uses, nil
}

// OfMember returns an error about a member of a union as one of the union that names the member.
// Other errors than *errs.Error stay as they are.
func OfMember(m, member *catalog.Resolved, err error) error {
	var known *errs.Error
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	e.Message = fmt.Sprintf("Model '%s', its member '%s': %s", m.ID, member.ID, e.Message)
	return &e
}

// lackFor returns an error if a device can never hold all members of a union at the same time. It
// knows the sizes of those that were loaded before; without it, each member's load would unload
// another forever.
func (h *Host) lackFor(m *catalog.Resolved, members []*catalog.Resolved) error {
	var need int64
	counted := make(map[string]bool, len(members))
	for _, one := range members {
		key := h.key(one)
		size, known := h.sizes.Load(key)
		if !known {
			return nil
		}
		if !counted[key] {
			counted[key] = true
			need += size.(int64)
		}
	}
	for _, d := range h.devices {
		lack := &shortage{device: d.name, what: "the weights of its members together need", need: need,
			neverFits: true, budget: h.opt.MemoryBudget > 0, total: h.opt.MemoryBudget,
			free: h.opt.MemoryBudget}
		switch {
		case lack.budget:
		case d.memory == nil:
			lack.device, lack.total = host, h.memory().total
		default:
			_, total, err := d.memory()
			if err != nil {
				continue // the loads report it
			}
			lack.total = total
		}
		if lack.total > 0 && need > lack.total {
			class, permanent := classify(lack)
			return errs.LoadFailed(m.ID, errs.LoadFailure{Class: class, Permanent: permanent},
				lack.Error(), lack)
		}
	}
	return nil
}

// askAll is Ask for the members of a union: it begins the loads of all.
func (h *Host) askAll(m *catalog.Resolved) (Asked, error) {
	out := Asked{Loaded: true}
	for i, one := range h.Members(m) {
		a, err := h.ask(one)
		if err != nil {
			return Asked{}, OfMember(m, one, err)
		}
		if i == 0 || a.BatchTokens < out.BatchTokens {
			out.BatchTokens = a.BatchTokens
		}
		if i == 0 || a.MaxTokens < out.MaxTokens {
			out.MaxTokens = a.MaxTokens
		}
		out.Loaded = out.Loaded && a.Loaded
		out.Loading, out.Started = out.Loading || a.Loading, out.Started || a.Started
	}
	if out.Loaded {
		return out, nil
	}
	return Asked{Loading: out.Loading, Started: out.Started}, nil
}

// preloadAll loads the members of a union and waits until all are loaded at the same time.
func (h *Host) preloadAll(ctx context.Context, m *catalog.Resolved) error {
	members := h.Members(m)
	for _, one := range members {
		ref, err := h.models.Acquire(ctx, h.key(one), h.loader(one))
		if err != nil {
			if lack := h.lackFor(m, members); lack != nil {
				return lack
			}
			return fmt.Errorf("model %s, its member %s: %w", m.ID, one.ID, err)
		}
		defer ref.Release() // when all are loaded
	}
	return nil
}

// union returns the state of a union from those of its members: loaded if all are. Bytes and queues
// are of those members that no entry of the catalog shows.
func (h *Host) union(v *snapshot, m *catalog.Resolved, loaded map[string]known) State {
	rank := []registry.State{
		registry.Failed, registry.Unloading, registry.Loading, registry.Available, registry.Loaded,
	}
	out := State{Entry: m, State: registry.Loaded, Loaded: &Loaded{}}
	worst := len(rank) - 1
	for i, one := range v.partsOf(m) {
		s := h.one(v, one, loaded)
		for at, state := range rank[:worst] {
			if s.State == state {
				worst, out.State = at, state
			}
		}
		if s.Failure != nil && out.Failure == nil {
			f := *s.Failure
			f.Cause = fmt.Sprintf("its member %s: %s", one.ID, f.Cause)
			out.Failure = &f
		}
		if l := s.Loaded; l != nil {
			out.Loaded.add(l, i == 0)
		}
	}
	if out.State != registry.Loaded {
		out.Loaded = nil
	}
	return out
}

// add adds a member to the state of its union.
func (l *Loaded) add(member *Loaded, first bool) {
	if first || member.MaxTokens < l.MaxTokens {
		l.MaxTokens = member.MaxTokens
	}
	if !member.First {
		return
	}
	l.First, l.Bytes = true, l.Bytes+member.Bytes
	queue, more := l.Queue, member.Queue
	if more.Items >= queue.Items {
		l.Queue = more
	}
	l.Queue.Items, l.Queue.Tokens = queue.Items+more.Items, queue.Tokens+more.Tokens
}
