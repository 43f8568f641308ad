package server

import (
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/lease"
)

// poolView is one pool in the form that SDKs read: one of the operator's, which are those of the
// lanes, or one that a client made.
type poolView struct {
	Name   string     `json:"name"`
	Spec   poolSpec   `json:"spec"`
	Status poolStatus `json:"status"`
}

type poolSpec struct {
	Name      string         `json:"name"`
	GPUs      map[string]int `json:"gpus"` // of the operator's, 0 for each profile: nothing is reserved
	Caps      map[string]int `json:"gpu_caps,omitempty"`
	Bundle    *string        `json:"bundle"`
	QueuePool string         `json:"queue_pool"`
	TTL       *int64         `json:"ttl_seconds"`
	Minimum   int            `json:"minimum_worker_count"`
	Pinned    []string       `json:"pinned_models"`
}

type poolStatus struct {
	State    string       `json:"state"` // active with the workers that it needs, else pending
	Assigned []poolWorker `json:"assigned_workers"`
	// seconds since 1970 by the broker's clock; of the operator's pools there are none
	Created *float64 `json:"created_at,omitempty"`
	Renewed *float64 `json:"last_renewed,omitempty"`
}

type poolWorker struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	GPU    string `json:"gpu"`
	Bundle string `json:"bundle"`
}

const (
	poolActive  = "active"
	poolPending = "pending"
)

// pools returns all pools, ordered by name.
func (s *Server) pools() []*poolView {
	byName := map[string]*poolView{}
	at := func(name string) *poolView {
		p := byName[name]
		if p == nil {
			p = &poolView{
				Name:   name,
				Spec:   poolSpec{Name: name, GPUs: map[string]int{}, QueuePool: name, Pinned: []string{}},
				Status: poolStatus{State: poolPending, Assigned: []poolWorker{}},
			}
			byName[name] = p
		}
		return p
	}
	for _, l := range s.opt.Lanes {
		at(l.Pool).Spec.GPUs[l.Profile] = 0
	}
	for _, w := range s.opt.Fleet().Workers {
		if !w.Live {
			continue
		}
		p := at(w.Home.Pool)
		p.Spec.GPUs[w.Home.Profile] = 0
		if w.Lane == w.Home {
			p.Status.State = poolActive
			p.Status.Assigned = append(p.Status.Assigned, viewWorker(w.ID, w.Lane.Profile, w.Lane.Bundle))
		}
	}
	for _, p := range s.opt.Pools.Pools() {
		byName[p.Spec.Name] = viewPool(p)
	}
	out := make([]*poolView, 0, len(byName))
	for _, p := range byName {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *poolView) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func viewWorker(id, profile, bundle string) poolWorker {
	return poolWorker{id, "http://" + id, profile, bundle}
}

// viewPool returns the view of a pool that a client made.
func viewPool(p *lease.Pool) *poolView {
	v := &poolView{Name: p.Spec.Name,
		Spec: poolSpec{Name: p.Spec.Name, GPUs: p.Spec.GPUs, Caps: p.Spec.Caps, QueuePool: p.Spec.QueuePool,
			Minimum: p.Spec.Minimum, Pinned: list(p.Spec.Pinned)},
		Status: poolStatus{State: poolPending, Assigned: []poolWorker{},
			Created: unixSeconds(p.Created), Renewed: unixSeconds(p.Renewed)}}
	if v.Spec.GPUs == nil {
		v.Spec.GPUs = map[string]int{}
	}
	if p.Spec.Bundle != "" {
		v.Spec.Bundle = &p.Spec.Bundle
	}
	if p.Spec.TTL > 0 {
		v.Spec.TTL = &p.Spec.TTL
	}
	if p.Active() {
		v.Status.State = poolActive
	}
	for _, w := range p.Assigned {
		v.Status.Assigned = append(v.Status.Assigned, viewWorker(w.ID, w.Profile, w.Bundle))
	}
	return v
}

func unixSeconds(t time.Time) *float64 {
	seconds := float64(t.UnixMicro()) / 1e6
	return &seconds
}

// listPools answers GET /v1/pools with the pools that its tenant may use.
func (s *Server) listPools(r *httpd.Request, _ string) {
	if !s.opt.Pools.Known() {
		r.Fail(dialect.RouteNative, errs.PoolsUnknown())
		return
	}
	all, t := s.pools(), r.Tenant()
	answer(r, map[string]any{"pools": slices.DeleteFunc(all,
		func(p *poolView) bool { return !t.MayUsePool(p.Name) })})
}

// pool returns the pool of a name, in any case, or nil.
func (s *Server) pool(name string) *poolView {
	for _, p := range s.pools() {
		if strings.EqualFold(p.Name, name) {
			return p
		}
	}
	return nil
}

func (s *Server) getPool(r *httpd.Request, name string) {
	if e := r.Tenant().CheckPool(name); e != nil {
		r.Fail(dialect.RouteNative, e)
		return
	}
	if p := s.pool(name); p != nil {
		answer(r, p)
		return
	}
	e := errs.NoSuchPool(name)
	if !s.opt.Pools.Known() {
		e = errs.PoolsUnknown()
	}
	r.Fail(dialect.RouteNative, e)
}

// operators reports whether a pool of a name is the operator's.
func (s *Server) operators(name string) bool {
	return strings.EqualFold(name, pools.DefaultPool) || s.opt.Pools.Find(name) == nil && s.pool(name) != nil
}
