package worker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/work"
)

// bucket is the pools of clients, as gateways write them.
type bucket struct {
	t *testing.T
	g *fakeGateway
	*lease.Store
}

func newBucket(t *testing.T, g *fakeGateway) *bucket {
	t.Helper()
	s, err := lease.NewStore(g.nc, bus.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bucket{t, g, s}
	g.ask(b.Make)
	return b
}

// put writes the pools.
func (b *bucket) put(pools ...*lease.Pool) {
	b.t.Helper()
	b.g.ask(func(ctx context.Context) error {
		v, err := b.Look(ctx, lease.View{})
		if err == nil {
			_, err = b.Swap(ctx, v, &lease.Table{Pools: pools})
		}
		return err
	})
}

func poolOf(name string, ttl int64, workers ...string) *lease.Pool {
	p := &lease.Pool{Spec: lease.Spec{Name: name, GPUs: map[string]int{lane.Profile: len(workers)},
		QueuePool: lane.Pool, TTL: ttl}}
	for _, w := range workers {
		p.Assigned = append(p.Assigned, lease.Worker{ID: w, Profile: lane.Profile, Bundle: lane.Bundle})
	}
	return p
}

// serves waits until a heartbeat says that the worker serves a pool.
func serves(t *testing.T, beats chan bus.WorkerHeartbeat, pool, home string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case h := <-beats:
			if h.Ready && h.PoolName == pool && h.HomePool == home {
				return
			}
		case <-deadline:
			t.Fatalf("the worker does not serve %s", pool)
		}
	}
}

// A worker that a pool has serves that pool's lane alone, answers what it had in its server, and
// comes back to its own lane when the pool is deleted, has expired, or its bucket is lost.
func TestAWorkerServesThePoolThatHasIt(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	b, beats := newBucket(t, g), heartbeats(t, g)
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "held", nil, "!hold")
	for id := ""; id != "held.0"; id = <-f.running {
	}
	b.put(poolOf("other", 600, "w2"), poolOf("mine", 600, "w1"))
	serves(t, beats, "mine", lane.Pool)

	mine := lane
	mine.Pool = "mine"
	into := func(_ *work.Item, m *nats.Msg) { m.Subject = mine.WorkSubject("org/m") }
	g.ask(func(ctx context.Context) error {
		stream, err := g.js.CreateOrUpdateStream(ctx, bus.Streams{}.Work("mine"))
		if err == nil {
			_, err = stream.CreateOrUpdateConsumer(ctx, bus.Streams{}.Consumer(mine.WorkSubject("org/m")))
		}
		return err
	})
	g.publish("org/m", "home", nil, "a")
	g.publish("org/m", "leased", into, "b")
	if err := g.nc.Publish(mine.DemandSubject("org/m"), nil); err != nil {
		t.Fatal(err)
	}
	if r := g.result("leased"); texts(r) != "B" {
		t.Errorf("%+v", r)
	}
	f.letGo()
	if r := g.result("held"); !r.Success {
		t.Errorf("%+v", r)
	}
	g.settled(func(s jetstream.StreamState) bool { return s.Msgs == 1 }) // what it had is acknowledged
	g.lock(func() {
		if len(g.results["home.0"]) > 0 {
			t.Error("a worker of a pool took work of its own lane")
		}
	})
	b.put()
	serves(t, beats, lane.Pool, "")
	if r := g.result("home"); texts(r) != "A" {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)

	b.put(poolOf("brief", 600, "w1"))
	serves(t, beats, "brief", lane.Pool)
	b.put(poolOf("brief", 1, "w1")) // not before it is seen, however long that takes
	serves(t, beats, lane.Pool, "") // nobody wrote
	b.put(poolOf("lost", 600, "w1"))
	serves(t, beats, "lost", lane.Pool)
	g.ask(func(ctx context.Context) error { return g.js.DeleteStream(ctx, bus.PoolsStream) })
	serves(t, beats, lane.Pool, "")
	g.lock(func() {
		for id, of := range g.results {
			if len(of) != 1 {
				t.Errorf("%s has %d results", id, len(of))
			}
		}
	})
}
