package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// parts returns n parts of a cost, with as many items.
func parts(n int, cost int32) []Part { return slices.Repeat([]Part{{cost, cost}}, n) }

// run serves what a Share grants, one part after another, and returns the keys in that order.
func run(s *Share, tickets map[string]*Ticket, most int) (order []string) {
	for len(order) < most {
		served := false
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range tickets {
				if !yield(k) {
					return
				}
			}
		}) {
			t := tickets[key]
			if s.Use(t) {
				order = append(order, key)
				s.Return(t, int(t.parts[0].Cost))
				served = true
				break
			}
		}
		if !served {
			return order
		}
	}
	return order
}

// A tenant with little sends its next part when the part that is out is back, whatever the others
// have; those that have much get the same.
func TestTurns(t *testing.T) {
	var s Share
	s.SetRoom(10)
	tickets := map[string]*Ticket{}
	for key, n := range map[string]int{"flood": 1000, "other": 1000, "small": 3} {
		tickets[key] = s.Join(key, 1, parts(n, 10), func() {})
	}
	s.Want(tickets["flood"], 1000)
	if got := run(&s, tickets, 50); len(got) != 50 {
		t.Fatalf("alone: %d parts", len(got))
	}
	s.Want(tickets["other"], 1000)
	s.Want(tickets["small"], 3)
	count := map[string]int{}
	for _, key := range run(&s, tickets, 41) {
		count[key]++
	}
	if count["small"] != 3 || count["flood"] < 18 || count["other"] < 18 {
		t.Errorf("of 41 parts: %v", count)
	}
}

// A tenant that was away has no claim on what it did not use, and no debt.
func TestNobodySaves(t *testing.T) {
	var s Share
	s.SetRoom(1)
	a := s.Join("a", 1, parts(1000, 1), func() {})
	s.Want(a, 1000)
	run(&s, map[string]*Ticket{"a": a}, 500)
	b := s.Join("b", 1, parts(1000, 1), func() {})
	s.Want(b, 1000)
	got := run(&s, map[string]*Ticket{"a": a, "b": b}, 100)
	n := 0
	for _, key := range got {
		if key == "b" {
			n++
		}
	}
	if n < 48 || n > 52 {
		t.Errorf("b got %d of 100", n)
	}
}

// Within a tenant high goes before normal before low, and what came first goes first. Between
// tenants a high one gets twice what a normal one gets.
func TestPriorities(t *testing.T) {
	var s Share
	s.SetRoom(1)
	tickets := map[string]*Ticket{}
	for _, key := range []string{"2a", "2b", "1a", "0a", "0b"} {
		tickets[key] = s.Join("t", int(key[0]-'0'), parts(2, 1), func() {})
	}
	block := s.Join("x", 1, parts(1, 1), func() {}) // holds the only room
	s.Want(block, 1)
	s.Use(block)
	for _, key := range []string{"2a", "2b", "1a", "0a", "0b"} {
		s.Want(tickets[key], 2)
	}
	s.Leave(block)
	got := run(&s, tickets, 10)
	want := []string{"0a", "0a", "0b", "0b", "1a", "1a", "2a", "2a", "2b", "2b"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, t := range tickets {
		s.Leave(t)
	}
	high, normal := s.Join("h", 0, parts(300, 1), func() {}), s.Join("n", 1, parts(300, 1), func() {})
	s.Want(high, 300)
	s.Want(normal, 300)
	n := 0
	for _, key := range run(&s, map[string]*Ticket{"h": high, "n": normal}, 300) {
		if key == "h" {
			n++
		}
	}
	if n < 195 || n > 205 {
		t.Errorf("high got %d of 300", n)
	}
}

// plain is what a Share promises, in simple terms.
type plain struct {
	ticket *Ticket
	key    string
	sent   int // parts that were used
	out    []Part
	woken  int
}

// Whatever happens, no part is lost, granted twice or out of its order within its request, what is
// out fits into the room unless it is a single part, and at the end nothing is left.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s Share
		s.SetRoom(r.IntN(50))
		var all []*plain
		check := func(what string) {
			t.Helper()
			out, waiting := 0, 0
			for _, p := range all {
				out += p.ticket.out
				for _, x := range p.ticket.parts[p.ticket.next:] {
					waiting += int(x.Items)
				}
				if p.ticket.next != p.sent+p.ticket.grants {
					t.Fatalf("seed %d, %s: part %d is next after %d sent and %d granted", seed, what,
						p.ticket.next, p.sent, p.ticket.grants)
				}
			}
			if out != s.out || waiting != s.waiting {
				t.Fatalf("seed %d, %s: %d out and %d waiting, counted %d and %d", seed, what,
					s.out, s.waiting, out, waiting)
			}
		}
		for step := range 400 {
			what := fmt.Sprint("step ", step)
			switch n := r.IntN(10); {
			case n < 2 || len(all) == 0:
				p := &plain{key: fmt.Sprint("t", r.IntN(4))}
				list := make([]Part, 1+r.IntN(8))
				for i := range list {
					c := int32(1 + r.IntN(20))
					list[i] = Part{c, c}
				}
				p.ticket = s.Join(p.key, r.IntN(Ranks), list, func() { p.woken++ })
				all = append(all, p)
			case n < 5:
				p := all[r.IntN(len(all))]
				s.Want(p.ticket, r.IntN(5))
			case n < 7:
				p := all[r.IntN(len(all))]
				if s.Use(p.ticket) {
					p.out = append(p.out, p.ticket.parts[p.sent])
					p.sent++
				}
			case n < 8:
				if p := all[r.IntN(len(all))]; len(p.out) > 0 {
					s.Return(p.ticket, int(p.out[0].Cost))
					p.out = p.out[1:]
				}
			case n < 9:
				room := r.IntN(60)
				if s.out <= room { // a smaller room takes nothing back
					s.SetRoom(room)
				}
			default:
				i := r.IntN(len(all))
				s.Leave(all[i].ticket)
				all = slices.Delete(all, i, i+1)
			}
			check(what)
			if s.out > s.room {
				parts := 0
				for _, p := range all {
					parts += len(p.out) + p.ticket.grants
				}
				if parts > 1 {
					t.Fatalf("seed %d, %s: %d out of %d in %d parts", seed, what, s.out, s.room, parts)
				}
			}
		}
		for _, p := range all {
			s.Leave(p.ticket)
		}
		if s.out != 0 || s.waiting != 0 || s.parts != 0 || s.away != len(s.flows) || len(s.active) != 0 {
			t.Fatalf("seed %d: left %+v", seed, s)
		}
	}
}

// What a tenant has sent counts on when it has no request left, and is forgotten when others have
// sent as much: neither leaving nor new names are of use, and names leave nothing.
func TestLeavingIsOfNoUse(t *testing.T) {
	var s Share
	s.SetRoom(1)
	a := s.Join("a", 1, parts(1000, 1), func() {})
	s.Want(a, 1000)
	s.Use(a)
	got := 0
	for range 300 { // one request after another beside one that is always there
		b := s.Join("b", 2, parts(1, 1), func() {})
		s.Want(b, 1)
		for !s.Use(b) {
			s.Return(a, 1)
			got++
			s.Use(a)
		}
		s.Return(b, 1)
		s.Leave(b)
		s.Use(a)
	}
	if got < 2*300-5 {
		t.Errorf("a was granted %d parts beside 300 of low priority, which count twice", got)
	}
	for i := range 1000 {
		s.Leave(s.Join(fmt.Sprint("name ", i), 1, parts(1, 1), func() {}))
	}
	if len(s.flows) > 2*leastSweep || s.Tenants("a") != 1 || s.Tenants("new") != 2 {
		t.Errorf("%d flows are kept, %d tenants", len(s.flows), s.Tenants("a"))
	}
}
