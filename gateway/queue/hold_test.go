package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
)

// deserted returns a rig whose lane is known to have no worker.
func deserted(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	g := newRig(t, change)
	g.fleet.Heartbeat(bus.HealthPrefix+"w1", []byte(`{"name":"w1","terminated":true}`))
	go g.fleet.Run(t.Context())
	for s := g.fleet.Snapshot(); !s.Settled; s = g.fleet.Snapshot() {
		<-s.Changed()
	}
	return g
}

func (g *rig) held() int {
	n, _ := g.backend.holds.now()
	return n
}

// A held request is answered when a worker comes; what leaves, is too much or was held for long
// enough is refused as at first; an SDK is never held.
func TestHold(t *testing.T) {
	g := deserted(t, func(o *Options) { o.MaxHolds = 2 })
	long := inference.Head{Hold: "10m"}
	provisioning := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, &errs.Error{Code: errs.Provisioning}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r := g.backend.Begin(long).Refusal(modelID); r != nil {
		t.Errorf("a request that may be held is refused before its body: %v", r.Err)
	}
	for what, h := range map[string]inference.Head{
		"an SDK": {Hold: "10m", Caller: dialect.ParseCaller("0.10.1")}, "nobody said so": {},
		"not at all": {Hold: "0"}, "for a moment": {Hold: "0.01"},
	} {
		_, err := g.encodeAs(t.Context(), h, "text")
		provisioning(what, err)
	}
	for _, bad := range []string{"soon", "-1s", "11m", "1e9"} {
		e := errs.As(g.backend.Begin(inference.Head{Hold: bad}).Check())
		if e == nil || e.Param != "X-SIE-Hold" {
			t.Errorf("%q: %v", bad, e)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		res, err := g.encodeAs(context.Background(), long, "text")
		check(t, res, err, "text")
	})
	gone := errors.New("gone")
	leaving, leave := context.WithCancelCause(t.Context())
	all.Go(func() {
		if _, err := g.encodeAs(leaving, long, "text"); !errors.Is(err, gone) {
			t.Errorf("a client that leaves: %v", err)
		}
	})
	eventually(t, "two are held", func() bool { return g.held() == 2 })
	_, err := g.encodeAs(t.Context(), long, "text")
	provisioning("a third", err)
	leave(gone)
	eventually(t, "one is held", func() bool { return g.held() == 1 })
	g.ready("w1")
	g.sidecar("w1", nil)
	all.Wait()
	if n, bytes := g.backend.holds.now(); n != 0 || bytes != 0 {
		t.Errorf("%d are held, with %d bytes", n, bytes)
	}
}

// What is held is bounded in number and bytes.
func TestHoldsAreBounded(t *testing.T) {
	var h holds
	o := Options{MaxHolds: 3, MaxHoldBytes: 100}
	for i, c := range []struct {
		bytes int64
		ok    bool
	}{{101, false}, {60, true}, {41, false}, {40, true}, {0, true}, {0, false}} {
		if h.take(c.bytes, &o) != c.ok {
			t.Errorf("%d: %d bytes: %v", i, c.bytes, !c.ok)
		}
	}
	h.give(60)
	if !h.take(60, &o) || h.take(1, &o) {
		t.Error("what ended is still counted")
	}
}

// Nothing is held until it is too late for an answer: it is told to come again while it listens.
func TestNothingIsHeldTooLong(t *testing.T) {
	g := deserted(t, func(o *Options) { o.Timeout = 50 * time.Millisecond })
	_, err := g.encodeAs(t.Context(), inference.Head{Hold: "10m"}, "text")
	if !errors.Is(err, &errs.Error{Code: errs.Provisioning}) {
		t.Error(err)
	}
}

// Clients name their pools: what requests to many of them leave behind does not grow.
func TestPoolsLeaveNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := deserted(t, func(o *Options) { o.Metrics = registry })
	g.backend.registry = models.New(models.Options{Fleet: g.fleet, Lanes: []bus.Lane{lane},
		Pools: func(pool string) ([]bus.Lane, bool, error) {
			return []bus.Lane{{Pool: pool, Profile: lane.Profile, Bundle: lane.Bundle}}, true, nil
		}})
	g.backend.registry.Set(testCatalog(t))
	for i := range 20 {
		s := g.backend.Begin(inference.Head{Pool: fmt.Sprint("of-client-", i)})
		r := s.Refusal(modelID)
		if r == nil {
			t.Fatal("not refused")
		}
		s.End(modelID, nil, r.Err)
	}
	want := map[string]string{"pool": lane.Pool, "machine_profile": lane.Profile,
		"scaling_action": "scale_up"}
	if got := series(t, registry, "sie_gateway_rejected_requests_total", want); got != 20 {
		t.Errorf("%v of 20 refusals are the lane's", got)
	}
	if n := len(g.backend.capacity); n != 1 {
		t.Errorf("%d refusals are kept", n)
	}
}

// A gateway that stops wakes what it holds: no look that was due anyway ends the hold.
func TestHoldsEnd(t *testing.T) {
	g := deserted(t, nil)
	g.backend.ask = time.Hour
	long := inference.Head{Hold: "10m"}
	done := make(chan error, 1)
	go func() {
		_, err := g.encodeAs(context.Background(), long, "text")
		done <- err
	}()
	eventually(t, "one is held", func() bool { return g.held() == 1 })
	g.queue.Drain()
	select {
	case err := <-done:
		if !errors.Is(err, &errs.Error{Code: errs.Provisioning}) {
			t.Errorf("a drain: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a drain waits for what is held")
	}
}
