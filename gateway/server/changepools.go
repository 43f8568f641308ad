package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/tenant"
)

// maxPool bounds the body of a call about a pool, in bytes.
const maxPool = 64 << 10

// poolRequest is the body of POST /v1/pools. Keys that it does not have are ignored, as newer SDKs
// may send some.
type poolRequest struct {
	Name      string         `json:"name"`
	GPUs      map[string]int `json:"gpus"`
	Caps      map[string]int `json:"gpu_caps"`
	QueuePool *string        `json:"queue_pool"`
	Bundle    *string        `json:"bundle"`
	TTL       *int64         `json:"ttl_seconds"`
	Minimum   *int           `json:"minimum_worker_count"`
	Pinned    []string       `json:"pinned_models"`
}

// readPool reads the body of POST /v1/pools.
func readPool(body []byte) (s lease.Spec, e *errs.Error) {
	if len(body) > maxPool {
		return s, errs.BodyTooLarge(maxPool)
	}
	var q poolRequest
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(&q)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the object")
		}
	}
	if err != nil {
		field := ""
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			field = wrong.Field
		}
		return s, errs.InvalidPool(field, `the body must be JSON like {"name":"mine","gpus":{"l4":1}}: %v`, err)
	}
	s = lease.Spec{Name: q.Name, GPUs: q.GPUs, Caps: q.Caps, Pinned: q.Pinned}
	if q.QueuePool != nil {
		s.QueuePool = *q.QueuePool
	}
	if q.Bundle != nil {
		s.Bundle = *q.Bundle
	}
	if q.Minimum != nil {
		s.Minimum = *q.Minimum
	}
	if q.TTL != nil {
		if s.TTL = *q.TTL; s.TTL == 0 {
			s.TTL = -1 // it was given, and is refused
		}
	}
	return s, nil
}

// putPool answers POST /v1/pools: it makes a pool, or changes and renews it.
func (s *Server) putPool(r *httpd.Request, _ string) {
	s.changePool(r, func(ctx context.Context, body []byte) *errs.Error {
		spec, e := readPool(body)
		if e != nil {
			return e
		}
		if e := checkPools(r.Tenant(), &spec); e != nil {
			return e
		}
		if spec.Name != "" && s.operators(spec.Name) {
			return errs.PoolForbidden("Pool " + errs.Quote(spec.Name) +
				" is the operator's: give a pool of your own another name")
		}
		p, e := s.opt.Pools.Put(ctx, spec)
		if e == nil {
			r.Audit("pool.create", p.Spec.Name)
			r.SetStatusCode(201)
			answer(r, viewPool(p))
		}
		return e
	})
}

// checkPools refuses a pool that a tenant may not use, and one that would take the workers of one
// that it may not use.
func checkPools(t *tenant.Tenant, s *lease.Spec) *errs.Error {
	for _, pool := range []string{s.Name, cmp.Or(s.QueuePool, pools.DefaultPool)} {
		if pool == "" {
			continue // it is refused for that
		}
		if e := t.CheckPool(pool); e != nil {
			return e
		}
	}
	for _, id := range s.Pinned {
		if !t.MayUseModel(id) {
			return t.Forbid("use model " + errs.Quote(id))
		}
	}
	return nil
}

// renewPool answers POST /v1/pools/{name}/renew. The operator's pools never expire.
func (s *Server) renewPool(r *httpd.Request, rest string) {
	name, renew := strings.CutSuffix(rest, "/renew")
	if !renew {
		r.Fail(dialect.RouteNative, errs.NoRoute())
		return
	}
	s.changePool(r, func(ctx context.Context, _ []byte) *errs.Error {
		if e := r.Tenant().CheckPool(name); e != nil {
			return e
		}
		if !s.operators(name) {
			if e := s.opt.Pools.Renew(ctx, name); e != nil {
				return e
			}
		}
		r.Audit("pool.renew", name)
		answer(r, map[string]string{"message": "Pool renewed"})
		return nil
	})
}

// deletePool answers DELETE /v1/pools/{name}.
func (s *Server) deletePool(r *httpd.Request, name string) {
	s.changePool(r, func(ctx context.Context, _ []byte) *errs.Error {
		if e := r.Tenant().CheckPool(name); e != nil {
			return e
		}
		switch {
		case strings.EqualFold(name, pools.DefaultPool):
			return errs.KeepDefaultPool()
		case s.operators(name):
			return errs.PoolForbidden("Pool " + errs.Quote(name) + " is the operator's and cannot be deleted")
		}
		if e := s.opt.Pools.Delete(ctx, name); e != nil {
			return e
		}
		r.Audit("pool.delete", name)
		answer(r, map[string]string{"message": "Pool deleted"})
		return nil
	})
}

// changePool runs a call that changes pools, and answers with its error.
func (s *Server) changePool(r *httpd.Request, f func(ctx context.Context, body []byte) *errs.Error) {
	err := r.Do("", func(w *admit.Work, body []byte) {
		if e := f(w.Context(), body); e != nil {
			r.Fail(dialect.RouteNative, e)
		}
	})
	if err != nil {
		r.Fail(dialect.RouteNative, errs.As(err))
	}
}
