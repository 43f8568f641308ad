package fair

import (
	"slices"
	"time"
)

// Unlimited is the room of a Share in which nothing waits.
const Unlimited = -1

// Ranks is the number of priorities; 0 is the highest.
const Ranks = 3

// weights holds what a part's cost counts, by rank, in halves.
var weights = [Ranks]int64{1, 2, 4}

// Part is the cost of a part of a request, and the items in it.
type Part struct{ Cost, Items int32 }

// Share is one queue. Its zero value has no room: SetRoom comes first.
type Share struct {
	room    int
	out     int // cost of the grants that were not returned
	flows   map[string]*flow
	active  []*flow // that have waiting tickets, in the order in which they became so
	turn    int64   // the highest tag of what was granted
	top     int64   // the highest tag of all
	away    int     // flows without tickets, which are kept for their tags
	sweepAt int     // so many of them
	seq     uint64
	waiting int // items
	parts   int // of them
	limited bool
}

// flow is a tenant.
type flow struct {
	key     string
	tickets [Ranks][]*Ticket // that want grants, in the order of their arrival
	tag     int64
	joined  int        // tickets
	waiting [Ranks]int // items of its tickets that were not granted
}

// leastSweep is the number of flows without tickets from which on it is looked for those that may
// be forgotten.
const leastSweep = 16

// Ticket is a request in a Share.
type Ticket struct {
	// Since is for the caller: when the ticket began to wait for its turn; zero: it does not.
	Since time.Time

	flow   *flow
	rank   int
	seq    uint64
	parts  []Part
	wake   func() // is called under the caller's lock when there is a grant
	next   int    // the part that is granted next
	want   int    // grants that it waits for
	grants int    // that were not used
	out    int    // cost of its grants that were not returned
}

// SetRoom sets the cost that may be out, or Unlimited.
func (s *Share) SetRoom(room int) {
	s.room = room
	s.grant()
}

// Room returns what SetRoom set.
func (s *Share) Room() int { return s.room }

// Out returns the cost that is out.
func (s *Share) Out() int { return s.out }

// Waiting returns the items that wait here.
func (s *Share) Waiting() int { return s.waiting }

// Parts returns the parts that wait here.
func (s *Share) Parts() int { return s.parts }

// WaitingOf returns the items of a tenant that wait here and go before a new request of a rank.
func (s *Share) WaitingOf(key string, rank int) (items int) {
	if f := s.flows[key]; f != nil {
		for _, n := range f.waiting[:rank+1] {
			items += n
		}
	}
	return items
}

// First returns the ticket of a tenant and a rank that has waited longest for a grant, or nil.
func (s *Share) First(key string, rank int) *Ticket {
	if f := s.flows[key]; f != nil && len(f.tickets[rank]) > 0 {
		return f.tickets[rank][0]
	}
	return nil
}

// Tenants returns the number of tenants that have tickets, with one of a key, which need not have.
func (s *Share) Tenants(key string) int {
	n := len(s.flows) - s.away
	if f := s.flows[key]; f == nil || f.joined == 0 {
		n++
	}
	return n
}

// ahead is by how many rooms whoever sent less than its share is ahead of those who had theirs, at
// most: the requests of a tenant come in bursts, which its share allows on the average.
const ahead = 2

// least returns the least tag that a flow may have. Tags count halves.
func (s *Share) least() int64 { return s.turn - ahead*2*int64(max(s.room, 0)) }

// begin is called when somebody begins to wait where nobody waited. Until then everybody had what
// it asked for: all are equal.
func (s *Share) begin() { s.turn += max(s.top-s.least(), 0) }

// Limited reports whether a part had to wait for room since the last call.
func (s *Share) Limited() bool {
	was := s.limited
	s.limited = false
	return was
}

// Join adds a request of a tenant. Its parts begin to count as waiting; Want asks for grants.
func (s *Share) Join(key string, rank int, parts []Part, wake func()) *Ticket {
	f := s.flows[key]
	if f == nil {
		if s.flows == nil {
			s.flows = map[string]*flow{}
		}
		f = &flow{key: key, tag: s.least()}
		s.flows[key] = f
		s.away++
	}
	if f.joined++; f.joined == 1 {
		s.away--
	}
	s.seq++
	t := &Ticket{flow: f, rank: rank, seq: s.seq, parts: parts, wake: wake}
	for _, p := range parts {
		f.waiting[rank] += int(p.Items)
		s.waiting += int(p.Items)
		s.parts++
	}
	return t
}

// Want says how many parts more, in all, the ticket can send now.
func (s *Share) Want(t *Ticket, n int) {
	n = min(n-t.grants, len(t.parts)-t.next)
	for ; n < 0 && t.grants > 0; n++ { // it can send less than it was granted: the last come back
		t.grants--
		t.next--
		p := t.parts[t.next]
		s.back(t, int(p.Cost))
		s.count(t, int(p.Items), 1)
	}
	s.enlist(t, max(n, 0))
	s.grant()
}

// Use takes a grant and reports whether there was one.
func (s *Share) Use(t *Ticket) bool {
	if t.grants == 0 {
		return false
	}
	t.grants--
	return true
}

// Return gives the cost of a part back that was used and has ended.
func (s *Share) Return(t *Ticket, cost int) {
	s.back(t, cost)
	s.grant()
}

// Leave removes a request with all that it holds.
func (s *Share) Leave(t *Ticket) {
	s.enlist(t, 0)
	s.back(t, t.out)
	left := 0
	for _, p := range t.parts[t.next:] {
		left += int(p.Items)
	}
	s.count(t, -left, t.next-len(t.parts))
	t.parts, t.next, t.grants = nil, 0, 0
	if t.flow.joined--; t.flow.joined == 0 {
		s.away++
	}
	s.grant()
	s.sweep()
}

// sweep forgets the flows without tickets whose tags a new one would have too.
func (s *Share) sweep() {
	if s.away < max(s.sweepAt, leastSweep) {
		return
	}
	for key, f := range s.flows {
		if f.joined == 0 && f.tag <= s.least() {
			delete(s.flows, key)
			s.away--
		}
	}
	s.sweepAt = 2 * s.away
}

func (s *Share) back(t *Ticket, cost int) {
	cost = min(cost, t.out)
	t.out -= cost
	s.out -= cost
}

func (s *Share) count(t *Ticket, items, parts int) {
	s.parts += parts
	t.flow.waiting[t.rank] += items
	s.waiting += items
}

// enlist makes a ticket one that waits for n grants.
func (s *Share) enlist(t *Ticket, n int) {
	before := t.want
	t.want = n
	f := t.flow
	list := &f.tickets[t.rank]
	switch {
	case before == 0 && n > 0:
		idle := f.idle()
		at := len(*list)
		for at > 0 && (*list)[at-1].seq > t.seq {
			at--
		}
		*list = slices.Insert(*list, at, t)
		if idle {
			if len(s.active) == 0 {
				s.begin()
			}
			f.tag = max(f.tag, s.least())
			s.active = append(s.active, f)
		}
	case before > 0 && n == 0:
		i := slices.Index(*list, t)
		*list = slices.Delete(*list, i, i+1)
		if f.idle() {
			s.active = slices.DeleteFunc(s.active, func(x *flow) bool { return x == f })
		}
	}
}

func (f *flow) idle() bool {
	for _, list := range f.tickets {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

// first returns the ticket of the flow that goes next. The flow is not idle.
func (f *flow) first() *Ticket {
	for _, list := range f.tickets {
		if len(list) > 0 {
			return list[0]
		}
	}
	panic("fair: internal error: an idle flow is active")
}

// grant grants parts as long as there is room. A part that is larger than the room goes when
// nothing else is out.
func (s *Share) grant() {
	for len(s.active) > 0 {
		f := s.active[0]
		for _, x := range s.active[1:] {
			if x.tag < f.tag {
				f = x
			}
		}
		t := f.first()
		p := t.parts[t.next]
		if s.room >= 0 && s.out > 0 && s.out+int(p.Cost) > s.room {
			s.limited = true
			return
		}
		s.turn = max(s.turn, f.tag)
		f.tag += int64(p.Cost) * weights[t.rank]
		s.top = max(s.top, f.tag)
		t.next++
		t.grants++
		t.out += int(p.Cost)
		s.out += int(p.Cost)
		s.count(t, -int(p.Items), -1)
		s.enlist(t, t.want-1)
		t.wake()
	}
}
