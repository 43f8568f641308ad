package worker

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/work"
)

// step does one random thing.
func (s *sim) step() {
	s.c.now = s.now
	switch n := s.r.IntN(100); {
	case n < 20:
		s.newWork()
	case n < 40 && len(s.todo) > 0:
		i := s.r.IntN(len(s.todo))
		f := s.todo[i]
		s.todo = slices.Delete(s.todo, i, i+1)
		f()
	case n < 60:
		s.deliverAny()
	case n < 78:
		s.finish()
	case n < 79:
		if s.conn {
			s.kill()
		}
	case n < 80 && s.conn: // the connection alone
		s.conn = false
		clear(s.inside)
		clear(s.calls)
		s.c.lost()
	case n < 84 && !s.conn:
		s.connectServer()
	case n < 88 && s.conn:
		p := s.ping()
		s.c.pong(&p)
	case n < 89 && s.c.connected:
		s.c.disconnect()
	case n < 90 && s.r.IntN(12) == 0: // the broker loses everything
		s.c.disconnect()
		s.loseStream()
	case n < 93 && !s.c.connected:
		s.connectBroker()
	case n < 94:
		s.cancelAny()
	case n < 95:
		s.silent = s.r.IntN(3) == 0
	}
	if !s.silent {
		s.c.heardOf("g")
	}
	s.tick(time.Duration(s.r.IntN(300)) * time.Millisecond)
}

func (s *sim) tick(d time.Duration) {
	s.now = s.now.Add(d)
	s.c.now = s.now
	s.c.scan = s.r.IntN(2) == 0
	g := s.c.gateways["g"]
	if g != nil && (g.gone || s.c.connected && s.now.Sub(g.seen) > work.GatewaySilence) {
		for _, r := range s.records {
			r.silenced = true
		}
	}
	s.c.tick()
	s.check()
}

func (s *sim) connectServer() {
	epoch := s.c.server.last.Epoch
	s.conn = true
	p := s.ping()
	s.c.up(&p, p.Epoch == epoch)
}

func (s *sim) connectBroker() {
	for p := range s.pulls {
		if p.closing {
			continue
		}
		p.Reset()
	}
	s.c.connect(2048)
}

func (s *sim) loseStream() {
	for _, m := range s.msgs {
		s.records[m.id].lost = true
	}
	s.stream++
	clear(s.msgs)
	s.seq = 0
	s.created = s.now.Add(time.Duration(s.stream))
}

func (s *sim) deliverAny() {
	if !s.c.connected {
		return
	}
	for p := range s.pulls {
		s.deliver(p)
	}
}

func (s *sim) cancelAny() {
	for _, id := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[id]
		if !r.receipted && !r.cancelled && s.r.IntN(4) == 0 {
			r.cancelled = true
			if s.r.IntN(4) > 0 {
				s.later(func() { s.c.cancelled("work_cancel.g."+r.item.RequestID, nil) })
			}
			return
		}
	}
}

// check holds what must always be true.
func (s *sim) check() {
	c := s.c
	sentNow := 0
	for id, m := range c.models {
		inflight, waiting, running, most := int64(0), int64(0), 0, int64(0)
		for _, x := range c.slices {
			if x.model != m {
				continue
			}
			switch {
			case x.state == sent:
				inflight += x.tokens
				running++
				most = max(most, x.tokens)
			case x.state == queued && !x.item.Alone:
				waiting += x.tokens
			}
		}
		sentNow += running
		if inflight != m.inflight || waiting != m.tokens || running != m.running {
			s.failf("%s: %d tokens in the server and %d waiting; counted %d and %d", id, inflight, waiting,
				m.inflight, m.tokens)
		}
		if m.window > 0 && inflight >= m.window+most && running > 1 {
			s.failf("%s: %d tokens in the server, the window is %d", id, inflight, m.window)
		}
	}
	if sentNow != c.inServer {
		s.failf("%d slices in the server, counted %d", sentNow, c.inServer)
	}
	bytes, ofRequests := int64(0), 0
	for _, x := range c.slices {
		bytes += int64(len(x.data))
		if len(x.deliveries) > maxDeliveries {
			s.failf("%d messages of one slice", len(x.deliveries))
		}
	}
	for _, of := range c.requests {
		ofRequests += len(of)
	}
	if bytes != c.bytes || ofRequests != len(c.slices) {
		s.failf("%d bytes in %d slices, counted %d in %d", bytes, len(c.slices), c.bytes, ofRequests)
	}
	if c.kept.Bytes() > hardKeptBytes || c.kept.Len() > len(c.slices) {
		s.failf("%d bytes of %d results are kept", c.kept.Bytes(), c.kept.Len())
	}
	if len(c.slices) > maxInHand+len(c.queues)*256 {
		s.failf("%d slices in hand", len(c.slices))
	}
}

// settle lets everything work until nothing is left, and checks that nothing was lost.
func (s *sim) settle() {
	s.silent = false
	begun := s.now
	for len(s.msgs)+len(s.c.slices) > 0 {
		if s.now.Sub(begun) > 320*time.Second {
			for _, m := range s.msgs {
				s.t.Logf("%+v %+v", m.id, s.records[m.id])
			}
			s.failf("%d messages and %d slices are left: %v", len(s.msgs), len(s.c.slices), s.stats)
		}
		s.c.now = s.now
		s.c.heardOf("g")
		if !s.c.connected {
			s.connectBroker()
		}
		if !s.conn {
			s.connectServer()
		}
		p := s.ping()
		s.c.pong(&p)
		todo := s.todo
		s.todo = nil
		for _, f := range todo {
			f()
		}
		s.deliverAny()
		for range 5 {
			s.finish()
		}
		s.tick(100 * time.Millisecond)
	}
	for id, r := range s.records {
		told := r.receipted || r.cancelled || r.silenced || r.lost || r.dead ||
			s.now.After(r.until.Add(work.ClockTolerance))
		if !told {
			s.failf("%s is lost: %+v", id, r)
		}
	}
	for id, m := range s.c.models {
		if m.inflight != 0 || m.tokens != 0 || m.solo != 0 || m.running != 0 {
			s.failf("%s keeps %+v", id, m)
		}
	}
	if s.c.inServer != 0 || len(s.c.alone) != 0 || len(s.c.requests) != 0 || s.c.kept.Len() != 0 ||
		s.c.bytes != 0 {
		s.failf("the core keeps something: %+v", s.c)
	}
}

// Random operations against a plain model: nothing is lost, nothing runs again after its receipt,
// nothing stays unacknowledged, and the credit holds. The properties are checked as they happen.
// Something rare (a message comes again while the server has it: two or three times in 150 runs)
// gets up to nine times as many runs to happen in.
func TestRandomOperations(t *testing.T) {
	seeds, total := uint64(150), map[string]int{}
	rare := []string{
		"answered", "died", "lost with the stream", "nak", "dropped cancelled", "dropped deadline",
		"dropped gateway_silent", "redelivered in_hand", "redelivered done", "receipts again",
		"receipts duplicate", "receipts unknown", "receipts no_responders", "server_died ",
		"ran alone", "load failed", "load error answered",
		"given_back server", "given_back server_refused", "given_back late",
	}
	if testing.Short() {
		seeds, rare = 20, nil // some things are too rare for these few
	}
	missing := func(what string) bool { return total[what] == 0 }
	for seed := uint64(0); seed < seeds || seed < 10*seeds && slices.ContainsFunc(rare, missing); seed++ {
		s := newSim(t, seed)
		s.connectServer()
		s.connectBroker()
		for range 600 {
			s.step()
		}
		s.settle()
		for k, v := range s.stats {
			total[k] += v
		}
		for _, r := range s.records {
			if r.receipted {
				total["answered"]++
			}
			if r.deaths[0] {
				total["died"]++
			}
			if r.lost {
				total["lost with the stream"]++
			}
		}
	}
	t.Log(total)
	for _, what := range rare {
		if missing(what) {
			t.Errorf("%s never happened: %v", what, total)
		}
	}
}

// A drain ends with nothing in hand, whenever it begins.
func TestRandomDrains(t *testing.T) {
	for seed := range uint64(60) {
		s := newSim(t, 1000+seed)
		s.connectServer()
		s.connectBroker()
		for range 50 + s.r.IntN(200) {
			s.step()
		}
		s.c.drain()
		for i := 0; !s.drained_; i++ {
			if i > 20_000 {
				s.failf("the drain does not end: %d slices, %d closing", len(s.c.slices), s.c.closing)
			}
			s.c.now = s.now
			if !s.c.connected {
				s.connectBroker()
			}
			if !s.conn {
				s.connectServer()
			}
			s.silent = false
			s.c.heardOf("g")
			todo := s.todo
			s.todo = nil
			for _, f := range todo {
				f()
			}
			s.finish()
			p := s.ping()
			s.c.pong(&p)
			s.tick(50 * time.Millisecond)
		}
		if len(s.c.slices) > 0 {
			s.failf("%d slices are in hand after the drain", len(s.c.slices))
		}
		for seq, m := range s.msgs { // what was not run is free for others, soon
			if m.at.After(s.now.Add(15 * time.Second)) {
				s.failf("message %s is hidden until %v", strconv.FormatUint(seq, 10), m.at.Sub(s.now))
			}
		}
	}
}

// The credit falls to what the server has taken when it refuses, and is whole again after answers.
func TestCreditFollowsRefusals(t *testing.T) {
	m := &model{full: 1600, window: 1600, inflight: 900}
	m.refused()
	if m.window != 900 {
		t.Errorf("the window is %d after a refusal at 900", m.window)
	}
	m.inflight = 0
	m.refused()
	if m.window != 100 {
		t.Errorf("the least window is %d", m.window)
	}
	n := 0
	for ; m.window < m.full; n++ {
		m.answered(320)
	}
	if m.window != 1600 || n != 300 {
		t.Errorf("the window is %d after %d answers", m.window, n)
	}
}
