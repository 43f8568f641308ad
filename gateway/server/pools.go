package server

import (
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// poolView is one pool in the form that SDKs read. The pools are those of the configured and the
// live lanes; nobody makes or renews them.
type poolView struct {
	Name   string     `json:"name"`
	Spec   poolSpec   `json:"spec"`
	Status poolStatus `json:"status"`
}

type poolSpec struct {
	Name    string         `json:"name"`
	GPUs    map[string]int `json:"gpus"` // 0 for each machine profile: nothing is reserved
	Bundle  *string        `json:"bundle"`
	Minimum int            `json:"minimum_worker_count"`
}

type poolStatus struct {
	State    string       `json:"state"` // active with live workers, else pending
	Assigned []poolWorker `json:"assigned_workers"`
}

type poolWorker struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	GPU    string `json:"gpu"`
	Bundle string `json:"bundle"`
}

// pools returns the pools, ordered by name.
func (s *Server) pools() []*poolView {
	byName := map[string]*poolView{}
	at := func(name string) *poolView {
		p := byName[name]
		if p == nil {
			p = &poolView{
				Name: name, Spec: poolSpec{Name: name, GPUs: map[string]int{}},
				Status: poolStatus{State: "pending", Assigned: []poolWorker{}},
			}
			byName[name] = p
		}
		return p
	}
	for _, l := range s.opt.Lanes {
		at(l.Pool).Spec.GPUs[l.Profile] = 0
	}
	for _, l := range s.opt.Fleet().Lanes {
		p := at(l.ID.Pool)
		p.Spec.GPUs[l.ID.Profile] = 0
		for _, w := range l.Workers {
			p.Status.State = "active"
			p.Status.Assigned = append(p.Status.Assigned,
				poolWorker{w.ID, "http://" + w.ID, l.ID.Profile, l.ID.Bundle})
		}
	}
	out := make([]*poolView, 0, len(byName))
	for _, p := range byName {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *poolView) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s *Server) listPools(r *httpd.Request, _ string) {
	answer(r, map[string]any{"pools": s.pools()})
}

func (s *Server) getPool(r *httpd.Request, name string) {
	for _, p := range s.pools() {
		if p.Name == name {
			answer(r, p)
			return
		}
	}
	r.Fail(dialect.RouteNative, errs.NoSuch("Pool "+errs.Quote(name)+" not found"))
}

// noPools answers a request that would make, renew or delete a pool: the lanes of this cluster are
// its operator's.
func (s *Server) noPools(r *httpd.Request, _ string) {
	e := errs.OutOfScope("/v1/pools")
	e.Message = "This gateway serves the lanes that its operator configured; it makes, renews and deletes no pools"
	r.Fail(dialect.RouteNative, e)
}
