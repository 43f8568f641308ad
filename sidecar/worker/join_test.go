package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// again has the next attempt of a slice come, changed, and all deaths before it counted.
func (s *sim) again(id string, change func(*work.Item)) *simMsg {
	s.t.Helper()
	r := s.records[id]
	r.deaths[r.item.Attempt] = true
	r.item.Attempt++
	change(&r.item)
	s.publishWork(r.item)
	m := s.msgs[s.seq]
	s.comes(m)
	return m
}

// comes has the broker deliver a message.
func (s *sim) comes(m *simMsg) {
	m.at = s.now.Add(15 * time.Second)
	s.c.arrived(s.c.follow(m.token), &nats.Msg{
		Subject: subjectOf(m.token), Reply: fmt.Sprintf("%d.%d", s.stream, m.seq), Data: m.data,
	}, true)
}

// The next attempt of a slice that is in hand may say that it must run alone. It takes the place of
// one that the server does not have yet, and never joins one that runs beside others there: then it
// is given back until that has ended.
func TestAnAttemptThatMustRunAloneJoinsNoOther(t *testing.T) {
	alone := func(it *work.Item) { it.Alone, it.DiedOn = true, []string{"other"} }
	free := func(*work.Item) {}
	here := func(it *work.Item) { it.Alone, it.DiedOn = true, []string{"w"} }
	has := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{simModels[0]} }
	for name, c := range map[string]struct {
		first, next func(*work.Item)
		state       state
		peer        bool // another worker has the model

		back     bool // the newer message is given back
		in       bool // a slice is in hand
		same     bool // it is the one that was in hand before
		attempt  uint32
		runAlone bool
	}{
		"it waits":                     {next: alone, state: queued, in: true, attempt: 1, runAlone: true},
		"it waits for its payload":     {next: alone, state: fetching, in: true, attempt: 1, runAlone: true},
		"it waits, and died here":      {next: here, state: queued, peer: true, back: true},
		"it waits, nobody else has it": {next: here, state: queued, in: true, attempt: 1, runAlone: true},
		"it runs beside others":        {next: alone, state: sent, back: true, in: true, same: true},
		"it runs alone": {first: alone, next: alone, state: sent, in: true, same: true, attempt: 1,
			runAlone: true},
		"it is to run alone": {first: alone, next: here, state: queued, in: true, attempt: 1,
			runAlone: true},
		"its result is kept":         {next: alone, state: keeping, in: true, same: true, attempt: 1},
		"its result is being stored": {next: alone, state: storing, in: true, same: true, attempt: 1},
		"the newer need not so":      {next: free, state: queued, in: true, same: true, attempt: 1},
		"it runs, the newer not so":  {next: free, state: sent, in: true, same: true, attempt: 1},
	} {
		s := connected(t)
		if c.peer {
			s.peer("other", has)
		}
		if c.first == nil {
			c.first = free
		}
		old := s.delivers(simModels[0], true, func(it *work.Item) {
			c.first(it)
			if c.state == fetching {
				it.PayloadRef = "key"
			}
		})
		x := s.c.slices[old.id]
		if c.state != fetching && c.state != queued {
			x.model.remove(x)
			s.c.alone = without(s.c.alone, x)
			x.state = c.state
		}
		m := s.again(old.id, c.next)
		got := s.c.slices[old.id]
		if back := m.at.Equal(s.now.Add(nakOther)); back != c.back || (got != nil) != c.in {
			t.Errorf("%s: given back: %v, in hand: %v", name, back, got != nil)
			continue
		}
		waits := 0
		for _, m := range s.c.models {
			waits += len(m.waiting) + m.solo
		}
		switch {
		case got == nil:
			if waits != 0 || len(s.c.alone) != 0 || s.c.bytes != 0 || len(s.c.requests) != 0 {
				t.Errorf("%s: %d slices wait", name, waits)
			}
			continue
		case (got == x) != c.same, got.item.Attempt != c.attempt, got.item.Alone != c.runAlone:
			t.Errorf("%s: the same: %v, %+v", name, got == x, got.item)
		}
		if c.state == fetching { // the payload of the older attempt comes, then that of the newer
			s.c.fetched(x, old.data, 1, nil)
			if len(s.c.alone) != 0 || waits != 0 {
				t.Errorf("%s: the older attempt waits", name)
			}
			s.c.fetched(got, m.data, 1, nil)
		}
		if n := len(s.c.alone); (n == 1) != (c.runAlone && c.state != sent) || n > 1 {
			t.Errorf("%s: %d slices wait to run alone", name, n)
		}
		if acked := s.msgs[old.seq] == nil; acked == c.same || !c.same && len(got.deliveries) != 1 {
			t.Errorf("%s: the older message is acknowledged: %v; %d are held", name, acked,
				len(got.deliveries))
		}
		s.comes(old) // once more
		if s.c.slices[old.id] != got || got.item.Attempt != c.attempt || got.item.Alone != c.runAlone {
			t.Errorf("%s: the older message takes the place of the newer", name)
		}
	}
}

// When the copy that ran beside others has ended, its result answers the slice, and the newer
// message is acknowledged unrun.
func TestACopyThatEndsAnswersTheAttemptThatMustRunAlone(t *testing.T) {
	s := connected(t)
	old := s.delivers(simModels[0], true, nil)
	x := s.c.slices[old.id]
	x.model.remove(x)
	x.state = sent
	next := func(it *work.Item) { it.Alone, it.DiedOn = true, []string{"other"} }
	s.again(old.id, next)
	s.c.keep(x, []byte{0x80})
	if m := s.again(old.id, next); m.at.Equal(s.now.Add(nakOther)) || len(x.deliveries) != 2 {
		t.Errorf("%d messages wait for the receipt", len(x.deliveries))
	}
}
