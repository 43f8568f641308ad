package worker

import (
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/pull"
)

// spy is a sim that counts what a core does.
type spy struct {
	*sim
	progressed, marks, reconciled int
}

func newSpy(t *testing.T) *spy {
	x := &spy{sim: newSim(t, 1)}
	x.c.do = x
	return x
}

func (x *spy) progress(d delivery) { x.progressed++ }

func (x *spy) publish(subject string, data []byte) {
	var m work.Mark
	if _, err := m.UnmarshalMsg(data); err == nil && (m.State == work.Taken || m.State == work.Running) {
		x.marks++
	}
}

func (x *spy) reconcile(q *queue, create bool) {
	x.reconciled++
	x.sim.reconcile(q, create)
}

// A slice in the server is marked, and its message kept from redelivery, only while the server
// shows life: it answers Pings, and the call that holds the slice makes progress.
func TestMarksNeedSignsOfLife(t *testing.T) {
	running := func(d time.Duration) []ipc.Progress {
		return []ipc.Progress{{RequestID: "call", ProgressMS: float64(d / time.Millisecond)}}
	}
	for name, c := range map[string]struct {
		heard   time.Duration // since the last answer to a Ping
		running []ipc.Progress
		alive   bool
	}{
		"progress":                       {0, running(time.Second), true},
		"progress a while ago":           {0, running(29 * time.Second), true},
		"no progress":                    {0, running(31 * time.Second), false},
		"a call that is not in the Ping": {0, nil, true},
		"a server that is silent":        {serverSilence + time.Second, running(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSpy(t)
			core := x.c
			core.connected, core.sure = true, true
			core.server.up, core.server.heard = true, core.now.Add(-c.heard)
			core.server.last.Running = c.running
			s := &slice{item: work.Item{WorkItemID: "q.0", ReplySubject: bus.Inbox("g", "q")}, state: sent,
				call: "call", deliveries: []delivery{{"0.1", 0}}, mark: core.now,
				until: core.now.Add(time.Hour)}
			core.slices["q.0"], core.marks = s, []*slice{s}
			core.visit()
			want := 0
			if c.alive {
				want = 1
			}
			if x.progressed != want || x.marks != want {
				t.Errorf("%d progress acks and %d marks, want %d", x.progressed, x.marks, want)
			}
		})
	}
}

// "No responders" to a pull has the stream and the consumer looked after at once, and not when the
// pull's heartbeats are missed.
func TestNoRespondersIsActedOnAtOnce(t *testing.T) {
	x := newSpy(t)
	pass := func(d time.Duration) {
		todo := x.todo
		x.todo = nil
		for _, f := range todo {
			f()
		}
		x.now = x.now.Add(d)
		x.c.now, x.c.scan = x.now, true
		x.c.tick()
	}
	x.connectServer()
	x.connectBroker()
	x.c.demand(lane.DemandSubject(simModels[0]))
	token := bus.Token(simModels[0])
	for range 100 {
		p := x.ping()
		x.c.pong(&p)
		pass(tickEvery)
		if q := x.c.queues[token]; q != nil && q.pulls != nil && q.pulls.Waiting() > 0 {
			break
		}
	}
	q := x.c.queues[token]
	if q == nil || q.pulls == nil || x.reconciled != 0 {
		t.Fatalf("nothing is pulled, or something was amiss: %d", x.reconciled)
	}
	x.c.heard(q, pull.Absent)
	pass(reconcileMin)
	if x.reconciled != 1 || q.pulls != nil {
		t.Errorf("looked after %d times after %v", x.reconciled, reconcileMin)
	}
	pass(tickEvery)
	pass(tickEvery)
	if q.pulls == nil || q.pulls.Waiting() == 0 {
		t.Error("it is not pulled again")
	}
}
