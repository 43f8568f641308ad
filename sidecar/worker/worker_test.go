package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
)

// A slice is pulled, marked, run, answered, receipted and acknowledged.
func TestASliceIsAnswered(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "r1", nil, "a", "b")
	r := g.result("r1")
	if texts(r) != "A,B" || !r.Success || r.WorkerID != "w1" || r.WorkItemID != "r1.0" || r.QueueMS <= 0 {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
}

// The gateway of a slice that is not answered at once is told who has it.
func TestASliceInHandIsMarked(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "r1", nil, "!hold")
	g.await("mark", func() bool { return len(g.marks["r1.0"]) > 0 })
	g.lock(func() {
		if m := g.marks["r1.0"][0]; m.State != work.Taken || m.WorkerID != "w1" {
			t.Errorf("the first mark: %+v", m)
		}
	})
	f.letGo()
	if r := g.result("r1"); !r.Success {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
}

// Work that was published before the sidecar came, and before it had a stream, is found.
func TestEarlierWorkIsFound(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	g.prepare("org/m")
	g.publish("org/m", "r1", nil, "a")
	startSidecar(t, s, f, "w1")
	if r := g.result("r1"); texts(r) != "A" {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
}

// Many slices of two models are each computed once and answered, and the credit bounds what is in
// the server. An answer comes twice where its receipt takes longer than work.ReceiptRetry.
func TestManySlices(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	f.tokens.Store(20)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m", "org/b")
	const n = 400
	for i := range n {
		g.publish([]string{"org/m", "org/b"}[i%2], fmt.Sprintf("r%d", i), nil, fmt.Sprintf("text %d", i))
	}
	for i := range n {
		if r := g.result(fmt.Sprintf("r%d", i)); texts(r) != fmt.Sprintf("TEXT %d", i) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	g.settled(empty0)
	f.mu.Lock()
	if len(f.ran) != n {
		t.Errorf("%d slices ran", len(f.ran))
	}
	for id, times := range f.ran {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
	f.mu.Unlock()
	// two windows of 40 tokens; a slice is 1 token at least
	if most := f.mostInside(); most > 2*(40+1) {
		t.Errorf("%d slices were in the server at once", most)
	}
}

// A result in chunks arrives although a chunk is lost, and one that nobody receipts is kept.
func TestChunksAndRetries(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.lock(func() { g.forget = 2 })
	g.publish("org/m", "big", nil, "!big")
	if r := g.result("big"); len(texts(r)) != 3<<20 {
		t.Errorf("%d bytes", len(texts(r)))
	}
	g.lock(func() { g.mute = true })
	g.publish("org/m", "late", nil, "x")
	g.await("result without a receipt", func() bool { return g.muted > 0 })
	g.lock(func() { g.mute = false })
	if r := g.result("late"); texts(r) != "X" {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
	if f.runs("late.0") != 1 {
		t.Errorf("ran %d times", f.runs("late.0"))
	}
}

// The server dies: what was in it is reported and not answered, and its next attempt runs alone.
func TestServerDies(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "held", nil, "!hold")
	<-f.running
	g.publish("org/m", "bad", nil, "!crash")
	g.await("report of both", func() bool {
		n := 0
		for _, of := range g.marks {
			for _, m := range of {
				if m.State == work.ServerDied {
					n++
				}
			}
		}
		return n >= 2
	})
	g.settled(empty0)
	f.letGo()
	f.start()
	for _, r := range []string{"held", "bad"} {
		g.publish("org/m", r, func(it *work.Item, _ *nats.Msg) {
			it.Attempt, it.Alone, it.DiedOn = 1, true, []string{"w1"}
		}, "again "+r)
	}
	for _, r := range []string{"held", "bad"} {
		if got := g.result(r); texts(got) != "AGAIN "+map[string]string{"held": "HELD", "bad": "BAD"}[r] ||
			got.Attempt != 1 {
			t.Errorf("%+v", got)
		}
		if f.company(r+".0") != 1 {
			t.Errorf("%s ran with %d others", r, f.company(r+".0")-1)
		}
	}
	g.settled(empty0)
}

// SIGTERM: what runs is finished, what waits goes back, and the last heartbeat says so.
func TestDrain(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	beats := heartbeats(t, g)
	w1 := startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "held", nil, "!hold")
	<-f.running
	w1.stop()
	for h := range beats {
		if !h.Ready && h.Sequence > 3 {
			break
		}
	}
	g.publish("org/m", "next", nil, "later")
	f.letGo()
	if r := g.result("held"); texts(r) != "!HOLD" {
		t.Errorf("%+v", r)
	}
	if err := <-w1.ended; err != nil {
		t.Error(err)
	}
	w1.ended <- nil
	for h := range beats {
		if h.Terminated {
			break
		}
	}
	startSidecar(t, s, f, "w2")
	if r := g.result("next"); texts(r) != "LATER" || r.WorkerID != "w2" {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
}

// The broker loses everything: the sidecar makes stream and consumer anew and goes on.
func TestBrokerLosesAll(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "r1", nil, "a")
	g.result("r1")
	s.Stop()
	s.Restart()
	begun := time.Now()
	for !g.nc.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	g.prepare("org/m")
	g.publish("org/m", "r2", nil, "b")
	if r := g.result("r2"); texts(r) != "B" {
		t.Errorf("%+v", r)
	}
	t.Logf("answered %v after the broker was back", time.Since(begun))
	g.settled(empty0)
}
