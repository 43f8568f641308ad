package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	var all []*held
	for i, c := range []struct {
		bytes int64
		ok    bool
	}{{101, false}, {60, true}, {41, false}, {40, true}, {0, true}, {0, false}} {
		x := h.take("a", c.bytes, &o)
		if (x != nil) != c.ok {
			t.Errorf("%d: %d bytes: %v", i, c.bytes, !c.ok)
		}
		if x != nil {
			all = append(all, x)
		}
	}
	h.give(all[0])
	if h.take("a", 60, &o) == nil || h.take("a", 1, &o) != nil {
		t.Error("what ended is still counted")
	}
}

// ended reports whether a request is held no longer, for another tenant.
func (x *held) ended() bool {
	select {
	case <-x.over:
		return true
	default:
		return false
	}
}

// One tenant may hold as much as there is room for; where another needs its share, the newest of
// what is beyond the first one's share ends. Nobody gets more than a share so, and what is within a
// share stays.
func TestHoldsAreShared(t *testing.T) {
	var h holds
	o := Options{MaxHolds: 8, MaxHoldBytes: 1000}
	var a []*held
	for range 8 {
		a = append(a, h.take("a", 10, &o))
	}
	for i := range 5 {
		if got := h.take("b", 10, &o) != nil; got != (i < 4) {
			t.Errorf("b's request %d is held: %v", i, got)
		}
	}
	for i, x := range a {
		if x.ended() != (i >= 4) {
			t.Errorf("a's request %d has ended: %v", i, x.ended())
		}
	}
	if h.take("a", 10, &o) != nil {
		t.Error("a took from b, which is within its share")
	}
	h = holds{}
	large := h.take("a", 900, &o)
	small := h.take("a", 50, &o)
	if h.take("b", 600, &o) != nil || large.ended() || small.ended() {
		t.Error("more than a share was given")
	}
	if h.take("b", 500, &o) == nil || !large.ended() || !small.ended() {
		t.Error("a share of the bytes was not given")
	}
	if n, bytes := h.now(); n != 1 || bytes != 500 || len(h.of) != 1 {
		t.Errorf("%d requests with %d bytes of %d tenants", n, bytes, len(h.of))
	}
	h.give(large) // its goroutine ends later
	if n, _ := h.now(); n != 1 {
		t.Errorf("%d requests are held", n)
	}
}

// Whatever is taken and given: the bounds hold, the counts are right, and a tenant within its share
// is refused only by others that are.
func TestHoldsByRandomOperations(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 17))
		var h holds
		o := Options{MaxHolds: 1 + r.IntN(20), MaxHoldBytes: int64(100 + r.IntN(1000))}
		live := map[*held]bool{}
		for range 400 {
			name := fmt.Sprint("t", r.IntN(4))
			if r.IntN(3) > 0 {
				bytes := int64(r.IntN(200))
				share := o.MaxHoldBytes / int64(len(h.of)+b2i(h.of[name] == nil))
				most := o.MaxHolds / (len(h.of) + b2i(h.of[name] == nil))
				var mine heldOf
				if of := h.of[name]; of != nil {
					mine = *of
				}
				x := h.take(name, bytes, &o)
				if x == nil && len(mine.list) < most && mine.bytes+bytes <= share {
					t.Fatalf("seed %d: %s is refused within its share", seed, name)
				}
				if x != nil {
					live[x] = true
				}
			} else {
				for x := range live {
					h.give(x)
					delete(live, x)
					break
				}
			}
			sum, n := int64(0), 0
			for x := range live {
				if x.ended() {
					delete(live, x)
					continue
				}
				sum, n = sum+x.bytes, n+1
			}
			count, bytes := h.now()
			if count != n || bytes != sum || count > o.MaxHolds || bytes > o.MaxHoldBytes {
				t.Fatalf("seed %d: %d with %d bytes are counted, %d with %d are held", seed, count, bytes, n, sum)
			}
		}
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
