package queue

import (
	"context"
	"slices"
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

// holds counts the requests that are held, and the bytes of their bodies. Where there is no room, a
// tenant within its share gets that of one beyond it, whose newest request is held no longer: a
// share is what all may hold, divided by the tenants that hold something. The zero value holds
// nothing.
type holds struct {
	mu    sync.Mutex
	count int
	bytes int64
	of    map[string]*heldOf // by tenant; none without a request
}

// heldOf is what is held of one tenant, the oldest first.
type heldOf struct {
	list  []*held
	bytes int64
}

// held is one request that is held.
type held struct {
	tenant string
	bytes  int64
	over   chan struct{} // closed when another tenant needs the room
}

// take holds a request if there is room for it, or room that is another tenant's beyond its share.
// It returns nil if there is none.
func (h *holds) take(tenant string, bytes int64, o *Options) *held {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.of[tenant]
	if mine == nil {
		mine = &heldOf{}
	}
	tenants := len(h.of) + b2i(len(mine.list) == 0)
	within := bytes <= o.MaxHoldBytes && len(mine.list) < o.MaxHolds/tenants &&
		mine.bytes+bytes <= o.MaxHoldBytes/int64(tenants)
	var ends []*held
	count, room := h.count, o.MaxHoldBytes-h.bytes
	for count >= o.MaxHolds || bytes > room {
		x := h.beyondLocked(tenant, ends, bytes > room)
		if x == nil || !within {
			return nil
		}
		ends = append(ends, x)
		count, room = count-1, room+x.bytes
	}
	for _, x := range ends {
		h.dropLocked(x)
		close(x.over)
	}
	x := &held{tenant, bytes, make(chan struct{})}
	if h.of == nil {
		h.of = map[string]*heldOf{}
	}
	h.of[tenant] = mine
	mine.list, mine.bytes = append(mine.list, x), mine.bytes+bytes
	h.count, h.bytes = h.count+1, h.bytes+bytes
	return x
}

// beyondLocked returns the newest request, but for those that end already, of the tenant that holds
// most, by bytes or by number. nil: nobody else holds any.
func (h *holds) beyondLocked(but string, ends []*held, byBytes bool) (newest *held) {
	most := int64(0)
	for name, of := range h.of {
		list, bytes := of.list, of.bytes
		for len(list) > 0 && slices.Contains(ends, list[len(list)-1]) {
			bytes -= list[len(list)-1].bytes
			list = list[:len(list)-1]
		}
		has := int64(len(list))
		if byBytes {
			has = bytes
		}
		more := has > most || has == most && newest != nil && name < newest.tenant
		if name != but && len(list) > 0 && more {
			most, newest = has, list[len(list)-1]
		}
	}
	return newest
}

// give ends the holding of a request.
func (h *holds) give(x *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(x)
}

// dropLocked removes a request, unless it was.
func (h *holds) dropLocked(x *held) {
	of := h.of[x.tenant]
	if of == nil {
		return
	}
	i := slices.Index(of.list, x)
	if i < 0 {
		return
	}
	of.list = slices.Delete(of.list, i, i+1)
	of.bytes -= x.bytes
	h.count, h.bytes = h.count-1, h.bytes-x.bytes
	if len(of.list) == 0 {
		delete(h.of, x.tenant)
	}
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
	b := s.backend
	var end *time.Timer
	var mine *held
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
		default:
			if mine = b.holds.take(s.head.Tenant.Key(), w.RequestBytes(), &b.queue.opt); mine == nil {
				b.queue.metrics.refused.WithLabelValues("holds").Inc()
				return models.Route{}, refused
			}
			defer b.holds.give(mine)
			late := w.Began().Add(limitFor(b.queue.opt.Timeout, s.head.Caller))
			end = time.NewTimer(min(s.hold, time.Until(late)))
			defer end.Stop()
		}
		again := time.NewTimer(b.ask)
		select {
		case <-f.Changed():
		case <-again.C:
		case <-b.queue.drained:
		case <-mine.over:
			again.Stop()
			b.queue.metrics.refused.WithLabelValues("holds").Inc()
			return models.Route{}, refused
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
