package worker

import (
	"testing"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/sidecar/rank"
)

// What waits in a gateway has a worker join as what waits in the stream does: from its threshold
// on, if it is next in rank, and for subjects of its own lane alone.
func TestABacklogInAGatewayHasAWorkerJoin(t *testing.T) {
	for _, c := range []struct {
		name    string
		subject func(*queue) string
		role    rank.Action
		n       int
		joins   bool
	}{
		{"enough", func(q *queue) string { return q.subject }, rank.Watch, 40, true},
		{"too little", func(q *queue) string { return q.subject }, rank.Watch, 39, false},
		{"others join", func(q *queue) string { return q.subject }, rank.Nothing, 40, false},
		{"another lane", func(q *queue) string { return "sie.work.other.lane.here." + q.token }, rank.Watch,
			40, false},
		{"no subject", func(*queue) string { return "sie.work" }, rank.Watch, 40, false},
	} {
		s := newBeatSim(t)
		s.c.demand(s.c.follow(bus.Token(simModels[0])).subject)
		q := s.c.queues[bus.Token(simModels[0])]
		q.role, q.threshold = c.role, 40
		m := s.c.model(s.c.idOf(q))
		m.state = cold
		s.c.backlog(c.subject(q), c.n)
		if (m.state == loading) != c.joins {
			t.Errorf("%s: state %v", c.name, m.state)
		}
	}
}
