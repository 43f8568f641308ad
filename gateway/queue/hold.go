package queue

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/internal/tenant"
)

// A caller that does not know what PROVISIONING means may be held until its lane has a worker.
// SIE's SDKs know: they are told, and come again.

// holdAsk is the time between two announcements of what held requests wait for.
const holdAsk = 10 * time.Second

// holds counts the requests that are held, and the bytes of their bodies.
type holds struct {
	mu    sync.Mutex
	count int
	bytes int64
}

// take counts a request if there is room for it.
func (h *holds) take(bytes int64, o *Options) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= o.MaxHolds || h.bytes+bytes > o.MaxHoldBytes {
		return false
	}
	h.count, h.bytes = h.count+1, h.bytes+bytes
	return true
}

func (h *holds) give(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count, h.bytes = h.count-1, h.bytes-bytes
}

// observe registers the gauges of what is held.
func (h *holds) observe(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(obs.Gauges(nil, func(set func(int, float64, ...string)) {
		count, bytes := h.now()
		set(0, float64(count))
		set(1, float64(bytes))
	}, "sie_gateway_held_requests", "Requests that wait for capacity.",
		"sie_gateway_held_request_bytes", "Bytes of their bodies."))
}

// now returns what is held.
func (h *holds) now() (count int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count, h.bytes
}

// holdOf returns for how long a request may be held: as its header says, or else its token.
func holdOf(h inference.Head) (time.Duration, error) {
	if h.Hold == "" {
		if h.Caller.Named {
			return 0, nil
		}
		return h.Tenant.Hold(), nil
	}
	d, err := tenant.ParseHold(h.Hold)
	if err != nil {
		return 0, errs.Invalidf("X-SIE-Hold", "X-SIE-Hold: %s is no time between 0s and 10m, such as 60s",
			errs.Quote(files.Clip(h.Hold, 32)))
	}
	if h.Caller.Named {
		return 0, nil
	}
	return d, nil
}

// empty reports whether a lane has no worker that could take work, as far as that can be known.
func empty(f *fleet.Snapshot, r models.Route) bool { return f.Settled && f.Lane(r.Lane).Empty() }

// await returns the route of a model to a lane with a ready worker. A request that may be held
// waits for one. When it has been held for long enough, or when too much is held, it is refused as
// it would have been at first; also when a worker would come too late for its answer.
func (s *session) await(w *admit.Work, m models.Model) (models.Route, error) {
	b, bytes := s.backend, w.RequestBytes()
	var end *time.Timer
	for {
		f := b.workers.Snapshot()
		route, err := s.route(m)
		refused := errs.As(err)
		if err == nil {
			s.at(route.Lane)
			if !empty(f, route) {
				return route, nil
			}
			refused = b.noCapacity(route.Lane).Err // and its demand is noted
		}
		switch {
		case refused.Code != errs.Provisioning:
			return models.Route{}, refused
		case s.hold == 0 || b.queue.draining.Load():
			b.queue.metrics.refused.WithLabelValues("capacity").Inc()
			return models.Route{}, refused
		case end != nil:
		case !b.holds.take(bytes, &b.queue.opt):
			b.queue.metrics.refused.WithLabelValues("holds").Inc()
			return models.Route{}, refused
		default:
			defer b.holds.give(bytes)
			late := w.Began().Add(limitFor(b.queue.opt.Timeout, s.head.Caller))
			end = time.NewTimer(min(s.hold, time.Until(late)))
			defer end.Stop()
		}
		again := time.NewTimer(b.ask)
		select {
		case <-f.Changed():
		case <-again.C:
		case <-b.queue.drained:
		case <-end.C:
			again.Stop()
			b.queue.metrics.refused.WithLabelValues("capacity").Inc()
			return models.Route{}, refused
		case <-w.Context().Done():
			again.Stop()
			return models.Route{}, context.Cause(w.Context())
		}
		again.Stop()
	}
}
