package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// peer makes another ready worker of the lane known, as changed.
func (s *sim) peer(name string, change func(*bus.WorkerHeartbeat)) {
	h := bus.WorkerHeartbeat{Name: name, Ready: true, PoolName: lane.Pool, MachineProfile: lane.Profile,
		Bundle: lane.Bundle}
	change(&h)
	s.c.heartbeatOf(&h)
}

// A slice whose server died here goes to another worker that pulls it: one that is ready, has the
// model and has not died with the slice. A worker that would have to load the model does not pull
// now, and the slice would come back here.
func TestASliceThatDiedHereGoesToAWorkerThatPulls(t *testing.T) {
	has := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} }
	hasN := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"n"} }
	loads := func(h *bus.WorkerHeartbeat) { h.LoadingModels = []string{"m"} }
	here := []string{"w"}
	for name, c := range map[string]struct {
		change func(*bus.WorkerHeartbeat) // of the other worker
		diedOn []string
		gives  bool
	}{
		"it has the model":     {has, here, true},
		"it loads the model":   {loads, here, false},
		"it is cold":           {func(*bus.WorkerHeartbeat) {}, here, false},
		"it is not ready":      {func(h *bus.WorkerHeartbeat) { has(h); h.Ready = false }, here, false},
		"it has another model": {hasN, here, false},
		"of another lane":      {func(h *bus.WorkerHeartbeat) { has(h); h.Bundle = "x" }, here, false},
		"it died with it too":  {has, []string{"w", "other"}, false},
		"another died with it": {has, []string{"third"}, false},
	} {
		s := newSim(t, 1)
		s.peer("other", c.change)
		it := &work.Item{WorkItemID: "r.0", ModelID: "m", DiedOn: c.diedOn}
		if got := s.c.preferOther(it); got != c.gives {
			t.Errorf("%s: given back: %v", name, got)
		}
	}
}

// A slice is given back maxGiveBacks times, then it runs here; how often other slices were given
// back is not forgotten by that.
func TestASliceIsGivenBackAFewTimes(t *testing.T) {
	s := newSim(t, 1)
	s.peer("other", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} })
	times := map[string]int{}
	waiting := []string{"a.0", "b.0", "c.0", "d.0"}
	for len(waiting) > 0 {
		var left []string
		for _, id := range waiting {
			if s.c.preferOther(&work.Item{WorkItemID: id, ModelID: "m", DiedOn: []string{"w"}}) {
				times[id]++
				left = append(left, id)
			}
		}
		waiting = left
	}
	for id, n := range times {
		if n != maxGiveBacks {
			t.Errorf("%s was given back %d times, want %d", id, n, maxGiveBacks)
		}
	}
	if len(s.c.giveBacks) != 0 {
		t.Errorf("%d counts are left", len(s.c.giveBacks))
	}
}

// Counts of slices that another worker has taken do not pile up.
func TestGiveBacksAreBounded(t *testing.T) {
	s := newSim(t, 1)
	s.peer("other", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} })
	for i := range 3 * maxInHand {
		s.c.preferOther(&work.Item{WorkItemID: string(rune('A' + i)), ModelID: "m", DiedOn: []string{"w"}})
		if n := len(s.c.giveBacks); n > maxInHand {
			t.Fatalf("%d counts are held", n)
		}
	}
}

// delivers has a message of new work of a model come, as if the broker delivered it.
func (s *sim) delivers(model string, open bool, change func(*work.Item)) *simMsg {
	s.t.Helper()
	request := fmt.Sprint("q", len(s.records))
	it := work.Item{WorkItemID: request + ".0", RequestID: request, Total: 1, Operation: work.Encode,
		ModelID: model, RouterID: "g", ReplySubject: bus.Inbox("g", request),
		Items: []msgp.Raw{msgp.AppendString(nil, "text")}}
	if change != nil {
		change(&it)
	}
	s.records[it.WorkItemID] = &record{item: it, deaths: map[uint32]bool{}, until: s.now.Add(time.Hour)}
	s.publishWork(it)
	m := s.msgs[s.seq]
	m.at = s.now.Add(15 * time.Second)
	s.c.arrived(s.c.follow(m.token), &nats.Msg{
		Subject: subjectOf(m.token), Reply: fmt.Sprintf("%d.%d", s.stream, m.seq), Data: m.data,
	}, open)
	return m
}

// connected returns a sim whose core knows its server and its stream.
func connected(t *testing.T) *sim {
	s := newSim(t, 1)
	s.connectServer()
	s.connectBroker()
	for _, f := range s.todo {
		f()
	}
	s.todo = nil
	return s
}

// A slice that comes to a worker whose server died with it, and that another one can run, goes back
// at once and is not in hand.
func TestASliceThatDiedHereIsNotTaken(t *testing.T) {
	for _, died := range []bool{true, false} {
		s := connected(t)
		s.peer("other", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{simModels[0]} })
		m := s.delivers(simModels[0], true, func(it *work.Item) {
			if died {
				it.Attempt, it.Alone, it.DiedOn = 1, true, []string{"w"}
			}
		})
		if back, in := m.at.Equal(s.now.Add(nakOther)), len(s.c.slices); back != died || (in == 0) != died {
			t.Errorf("died here: %v; it may be delivered in %v, %d slices in hand", died, m.at.Sub(s.now), in)
		}
	}
}

// A drain gives back at once what the server does not have yet, and what comes later; so does a
// queue that was closed. What the server has stays.
func TestADrainGivesBackAtOnce(t *testing.T) {
	s := connected(t)
	if m := s.delivers(simModels[0], false, nil); !m.at.Equal(s.now.Add(nakServer)) || len(s.c.slices) != 0 {
		t.Errorf("of a closed queue: it may be delivered in %v, %d slices in hand", m.at.Sub(s.now),
			len(s.c.slices))
	}
	runs, waits := s.delivers(simModels[0], true, nil), s.delivers(simModels[0], true, nil)
	x := s.c.slices[runs.id]
	x.model.remove(x)
	x.state = sent
	s.c.drain()
	late := s.delivers(simModels[0], true, nil)
	for name, m := range map[string]*simMsg{"what waits": waits, "what is late": late} {
		if !m.at.Equal(s.now.Add(nakServer)) {
			t.Errorf("%s may be delivered in %v", name, m.at.Sub(s.now))
		}
	}
	if len(s.c.slices) != 1 || s.c.slices[runs.id] != x {
		t.Errorf("%d slices in hand, want the one in the server", len(s.c.slices))
	}
}

// A drain that takes too long gives back all that it has and knows none of it any more: an outcome
// that comes later is nobody's.
func TestADrainThatTakesTooLongForgets(t *testing.T) {
	s := connected(t)
	runs, dropped := s.delivers(simModels[0], true, nil), s.delivers(simModels[0], true, nil)
	for _, m := range []*simMsg{runs, dropped} {
		x := s.c.slices[m.id]
		x.model.remove(x)
		x.state, x.call = sent, "call"
		x.model.inflight += x.tokens
		x.model.running++
		s.c.inServer++
	}
	s.c.slices[dropped.id].dropped, s.c.slices[dropped.id].deliveries = true, nil
	s.c.drain()
	s.c.abandon()
	if !runs.at.Equal(s.now.Add(nakServer)) {
		t.Errorf("what runs may be delivered in %v", runs.at.Sub(s.now))
	}
	if len(s.c.slices) != 0 || s.c.inServer != 0 {
		t.Errorf("%d slices in hand, %d in the server", len(s.c.slices), s.c.inServer)
	}
	s.c.outcome("call", &ipc.Outcome{WorkItemID: runs.id, Disposition: ipc.PublishAndAck})
	if s.c.kept.Len() != 0 {
		t.Error("a result of what was given back is kept")
	}
}

// A drain hides no message from other workers: neither one that is on its way when it begins, nor
// one that is still in the server when its time is over. The ack wait of the consumer is an hour
// here. Five workers drain in the middle of what flows.
func TestADrainHidesNothing(t *testing.T) {
	s := bustest.Start(t, nil)
	g := newGateway(t, s, "gw")
	g.prepare("org/m")
	c := (bus.Streams{}).Consumer(lane.WorkSubject("org/m"))
	c.AckWait = time.Hour
	if _, err := g.js.UpdateConsumer(t.Context(), bus.StreamName(lane.Pool), c); err != nil {
		t.Fatal(err)
	}
	const n, rounds = 4000, 5
	held := func(round int) int { return 100 + round*n/rounds }
	next := 0
	for i := range n {
		text := "text"
		if next < rounds && i == held(next) {
			text, next = "!hold", next+1
		}
		g.publish("org/m", fmt.Sprint("r", i), nil, text)
	}
	for round := range rounds {
		f := startFake(t)
		f.tokens.Store(100_000)
		w := startSidecar(t, s, f, fmt.Sprint("w", round),
			func(c *Config) { c.DrainTimeout = 300 * time.Millisecond })
		for <-f.running != fmt.Sprintf("r%d.0", held(round)) {
		}
		w.stop()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		w.ended <- nil
	}
	last := startFake(t)
	last.letGo()
	startSidecar(t, s, last, "last")
	by := map[string]int{}
	for i := range n {
		by[g.result(fmt.Sprint("r", i)).WorkerID]++
	}
	if by["w0"] == 0 || by["last"] == 0 {
		t.Errorf("answers came from %v", by)
	}
	g.settled(empty0)
}

// A drain that takes too long gives back what is in the server when the broker knows no pull of it
// any more, however late it hears so: else what comes back goes to that pull, and nobody sees it
// until its ack wait is over, an hour here.
func TestADrainThatTakesTooLongHidesNothing(t *testing.T) {
	s := bustest.Start(t, nil)
	g := newGateway(t, s, "gw")
	g.prepare("org/m")
	c := (bus.Streams{}).Consumer(lane.WorkSubject("org/m"))
	c.AckWait = time.Hour
	if _, err := g.js.UpdateConsumer(t.Context(), bus.StreamName(lane.Pool), c); err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		g.publish("org/m", fmt.Sprint("r", i), nil, "!hold")
	}
	f, network := startFake(t), s.Slow()
	w := startSidecar(t, s, f, "slow", func(c *Config) {
		c.NATS.URL = network.URL
		c.DrainTimeout = time.Millisecond
	})
	<-f.running
	network.HoldAnswers(3 * nakServer)
	w.stop()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil
	last := startFake(t)
	last.letGo()
	startSidecar(t, s, last, "last")
	for i := range n {
		g.result(fmt.Sprint("r", i))
	}
	g.settled(empty0)
}
