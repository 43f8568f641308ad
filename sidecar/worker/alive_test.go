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
	q := x.pulling(simModels[0])
	x.c.heard(q, pull.Absent)
	x.pass(reconcileMin)
	if x.reconciled != 1 || q.pulls != nil {
		t.Errorf("looked after %d times after %v", x.reconciled, reconcileMin)
	}
	x.pass(tickEvery)
	x.pass(tickEvery)
	if q.pulls == nil || q.pulls.Waiting() == 0 {
		t.Error("it is not pulled again")
	}
}

// pass lets everything that is on its way happen, and then time pass.
func (x *spy) pass(d time.Duration) {
	todo := x.todo
	x.todo = nil
	for _, f := range todo {
		f()
	}
	x.now = x.now.Add(d)
	x.c.now, x.c.scan = x.now, true
	x.c.tick()
}

// pulling returns the queue of a model, once its work is pulled.
func (x *spy) pulling(model string) *queue {
	x.t.Helper()
	if !x.conn {
		x.connectServer()
		x.connectBroker()
	}
	x.c.demand(lane.DemandSubject(model))
	q := x.c.queues[bus.Token(model)]
	for range 100 {
		p := x.ping()
		x.c.pong(&p)
		x.pass(tickEvery)
		if q.pulls != nil && q.pulls.Waiting() > 0 {
			break
		}
	}
	if q.pulls == nil || q.pulls.Waiting() == 0 || x.reconciled != 0 {
		x.t.Fatalf("nothing is pulled, or something was amiss: %d", x.reconciled)
	}
	return q
}

// A pull that reaches a consumer while it is deleted gets no answer at all. When the stream was
// made again, every pull that is open then is given up, and not only those that are told: not
// after pull.Silence, and only once.
func TestPullsOfAStreamThatIsGoneAreGivenUp(t *testing.T) {
	x := newSpy(t)
	told, untold, idle := x.pulling(simModels[0]), x.pulling(simModels[1]), x.c.follow("idle")
	of := untold.pulls
	x.loseStream()
	x.c.heard(told, pull.Absent)
	for range 4 * int(reconcileMin/tickEvery) {
		x.pass(tickEvery)
	}
	if x.reconciled != 2 || idle.absent {
		t.Errorf("%d queues were looked after, want the two that were pulled from", x.reconciled)
	}
	for range 10 {
		x.pass(tickEvery)
	}
	for _, q := range []*queue{told, untold} {
		if q.absent || q.pulls == nil || q.pulls == of || q.pulls.Waiting() == 0 {
			t.Errorf("%s is not pulled anew", q.token)
		}
	}
	if x.reconciled != 2 {
		t.Errorf("%d looks", x.reconciled)
	}
}
