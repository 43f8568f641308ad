package fair

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainShare is the plain model of the turns: tenants with tags, and every waiting part of all in
// one list. What goes next is searched for each time.
type plainShare struct {
	room, out int
	turn      int64
	tags      map[string]int64
	since     map[string]int // when the tenant last began to wait
	waiting   []plainPart
	arrived   int
}

type plainPart struct {
	key           string
	rank, arrived int // arrived: its request
	cost          int
}

// begin makes all equal while nobody waits.
func (p *plainShare) begin() {
	if len(p.waiting) == 0 {
		for _, tag := range p.tags {
			p.turn = max(p.turn, tag+4*int64(p.room))
		}
	}
}

func (p *plainShare) tag(key string) int64 {
	least := p.turn - 4*int64(p.room)
	if tag, known := p.tags[key]; known {
		return max(tag, least)
	}
	return least
}

func (p *plainShare) of(key string) (cost int) {
	for _, x := range p.waiting {
		if x.key == key {
			cost += x.cost
		}
	}
	return cost
}

// join adds the parts of a request, which may all go.
func (p *plainShare) join(key string, rank int, parts []Part) {
	p.arrived++
	p.begin()
	if p.of(key) == 0 {
		p.tags[key], p.since[key] = p.tag(key), p.arrived
	}
	for _, x := range parts {
		p.waiting = append(p.waiting, plainPart{key, rank, p.arrived, int(x.Cost)})
	}
}

// next takes the part that goes next, if there is room for it.
func (p *plainShare) next() (x plainPart, ok bool) {
	if len(p.waiting) == 0 {
		return x, false
	}
	x = slices.MinFunc(p.waiting, func(a, b plainPart) int {
		return cmp.Or(cmp.Compare(p.tags[a.key], p.tags[b.key]), cmp.Compare(p.since[a.key], p.since[b.key]),
			cmp.Compare(a.rank, b.rank), cmp.Compare(a.arrived, b.arrived))
	})
	if p.out > 0 && p.out+x.cost > p.room {
		return x, false
	}
	i := slices.Index(p.waiting, x)
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.turn = max(p.turn, p.tags[x.key])
	p.tags[x.key] += int64(x.cost) * weights[x.rank]
	p.out += x.cost
	return x, true
}

// load is one request of the simulation.
type load struct {
	key     string
	ticket  *Ticket
	rank    int
	left    int // parts that are not served
	arrived int
	bound   int // it is served by then; 0: nothing is said of it
}

// simulation is a Share and the plain model of it before one server, which serves in order and
// whose clock counts the cost that it has served.
type simulation struct {
	t     *testing.T
	seed  uint64
	share Share
	plain plainShare
	all   []*load // that are not served
	out   []sent
	clock int
	tight float64 // the longest wait of those that have a bound, as a share of it
}

// sent is a part that is out.
type sent struct {
	of   *load
	cost int
}

// sync takes what was granted, and compares it with what the plain model grants.
func (s *simulation) sync() {
	s.t.Helper()
	for {
		want, ok := s.plain.next()
		var got *load
		for _, l := range s.all {
			first := got == nil || l.key == want.key && (got.key != want.key || l.rank < got.rank)
			if l.ticket.grants > 0 && first {
				got = l
			}
		}
		if ok != (got != nil) {
			s.t.Fatalf("seed %d at %d: a part is granted: %v; by the plain model: %v", s.seed, s.clock, !ok, ok)
		}
		if !ok {
			return
		}
		t := got.ticket
		if c := int(t.parts[t.next-t.grants].Cost); got.key != want.key || c != want.cost {
			s.t.Fatalf("seed %d at %d: %s is granted %d; the plain model grants %+v", s.seed, s.clock, got.key, c,
				want)
		}
		s.share.Use(t)
		s.out = append(s.out, sent{got, want.cost})
	}
}

// serve serves the part that was sent first.
func (s *simulation) serve() {
	s.t.Helper()
	x := s.out[0]
	s.out = s.out[1:]
	s.clock += x.cost
	s.plain.out -= x.cost
	s.share.Return(x.of.ticket, x.cost)
	if x.of.left--; x.of.left == 0 {
		if l := x.of; l.bound > 0 {
			if s.clock > l.bound {
				s.t.Errorf("seed %d: a request of %s waited from %d to %d; the bound is %d", s.seed, l.key,
					l.arrived, s.clock, l.bound)
			}
			s.tight = max(s.tight, float64(s.clock-l.arrived)/float64(l.bound-l.arrived))
		}
		s.share.Leave(x.of.ticket)
		s.all = slices.DeleteFunc(s.all, func(l *load) bool { return l == x.of })
	}
	s.sync()
}

// The bounds of the simulation's requests.
const (
	largestPart = 32
	mostParts   = 6
)

// arrive adds a request of random parts. Those of a tenant that has nothing waiting, where all have
// normal priority, have the bound of the package's comment.
func (s *simulation) arrive(r *rand.Rand, key string, rank int, names []string, bounded bool) {
	parts, cost := make([]Part, 1+r.IntN(mostParts)), 0
	for i := range parts {
		c := int32(1 + r.IntN(largestPart))
		parts[i], cost = Part{c, c}, cost+int(c)
	}
	s.plain.begin()
	l := &load{key: key, rank: rank, left: len(parts), arrived: s.clock}
	if bounded && s.plain.of(key) == 0 {
		l.bound = s.clock + max(s.plain.room, largestPart) + cost
		for _, other := range names {
			if other != key { // tags count halves
				ahead := int64(2*cost) + s.plain.tag(key) - s.plain.tag(other)
				l.bound += int(max(ahead, 0))/2 + 2*largestPart
			}
		}
	}
	l.ticket = s.share.Join(key, rank, parts, func() {})
	s.all = append(s.all, l)
	s.plain.join(key, rank, parts)
	s.share.Want(l.ticket, len(parts))
	s.sync()
}

// The Share grants what the plain model grants, in its order, for random requests of three tenants
// at one, one and ten times a rate, with and without priorities; and each request is served within
// its bound, whatever the others have waiting.
func TestTheBound(t *testing.T) {
	tight := 0.0
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 3))
		room := largestPart + r.IntN(500)
		s := simulation{t: t, seed: seed, plain: plainShare{room: room, tags: map[string]int64{},
			since: map[string]int{}}}
		s.share.SetRoom(room)
		names, rates, at := []string{"a", "b", "c"}, []float64{10, 1, 1}, []float64{0, 0, 0}
		const mean = largestPart * mostParts / 4 // of a request
		for range 400 {
			who := slices.Index(at, slices.Min(at))
			for len(s.out) > 0 && float64(s.clock) < at[who] {
				s.serve()
			}
			s.clock = max(s.clock, int(at[who]))
			at[who] += r.ExpFloat64() * mean * 4 / rates[who] // b and c ask for a half, a for more than all
			rank := 1
			if seed%2 == 1 {
				rank = r.IntN(Ranks)
			}
			s.arrive(r, names[who], rank, names, seed%2 == 0)
		}
		for len(s.out) > 0 {
			s.serve()
		}
		if len(s.all) > 0 || s.share.Out() != 0 || s.share.Waiting() != 0 {
			t.Fatalf("seed %d: %d requests are left", seed, len(s.all))
		}
		tight = max(tight, s.tight)
	}
	if tight < 0.6 {
		t.Errorf("the longest wait was %.0f %% of its bound: it says little", 100*tight)
	}
}
