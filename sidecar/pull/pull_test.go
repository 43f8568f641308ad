package pull

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
)

var (
	lane    = bus.Lane{Pool: "p", Profile: "cpu", Bundle: "b"}
	subject = lane.WorkSubject("m")
)

const patience = 2 * time.Minute

// rig is a queue over a real broker whose messages come to a channel.
type rig struct {
	t  *testing.T
	s  *bustest.Server
	nc *nats.Conn
	js jetstream.JetStream
	q  *Queue
	in chan *nats.Msg
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := bustest.Start(t, nil)
	r := &rig{t: t, s: s, nc: s.Connect(bus.SidecarInboxes), in: make(chan *nats.Msg, 10_000)}
	var err error
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	r.queue()
	return r
}

func (r *rig) queue() {
	r.t.Helper()
	var err error
	r.q, err = New(r.nc, bus.StreamName(lane.Pool), bus.ConsumerName(subject), r.nc.NewInbox(),
		func(m *nats.Msg) { r.in <- m })
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) prepare() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.js.CreateStream(ctx, bus.Streams{}.Work(lane.Pool)); err != nil {
		r.t.Fatal(err)
	}
	c := bus.Streams{}.Consumer(subject)
	if _, err := r.js.CreateConsumer(ctx, bus.StreamName(lane.Pool), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) publish(n, size int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for i := range n {
		m := nats.NewMsg(subject)
		m.Data = fmt.Appendf(make([]byte, size), "%d", i)
		if _, err := r.js.PublishMsg(ctx, m); err != nil {
			r.t.Fatal(err)
		}
	}
}

// info returns the consumer's state.
func (r *rig) info() *jetstream.ConsumerInfo {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	c, err := r.js.Consumer(ctx, bus.StreamName(lane.Pool), bus.ConsumerName(subject))
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo()
}

// next returns what the next message that is no heartbeat was.
func (r *rig) next() (Kind, *nats.Msg) {
	r.t.Helper()
	for {
		select {
		case m := <-r.in:
			if k := r.q.Heard(time.Now(), m); k != Alive || m.Header.Get("Status") != "100" {
				return k, m
			}
		case <-time.After(patience):
			r.t.Fatal("nothing came")
		}
	}
}

// A pull brings as many slices as it asked for, and its end gives back what it did not bring.
func TestPull(t *testing.T) {
	r := newRig(t)
	r.prepare()
	r.publish(5, 10)
	if err := r.q.Pull(time.Now(), 3, 1<<20); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if k, m := r.next(); k != Work || m.Subject != subject || m.Reply == "" {
			t.Fatalf("message %d: %v %+v", i, k, m)
		}
	}
	if k, _ := r.next(); k != Alive || r.q.Open() != 0 || r.q.Waiting() != 0 {
		t.Errorf("the end of the pull is %v; %d pulls open, %d slices waited for",
			k, r.q.Open(), r.q.Waiting())
	}
	if n := r.info().NumAckPending; n != 3 {
		t.Errorf("%d slices were delivered", n)
	}
	// by bytes: a slice that is larger than what is left ends the pull
	r.publish(1, 5000)
	if err := r.q.Pull(time.Now(), 3, 3000); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r.q.Open() > 0 {
		if k, _ := r.next(); k == Work {
			n++
		}
	}
	if n != 2 || r.q.Waiting() != 0 {
		t.Errorf("%d slices of 3000 bytes came, %d are waited for", n, r.q.Waiting())
	}
}

// No more than MaxOpen pulls are open, and none of nothing.
func TestPullsAreBounded(t *testing.T) {
	r := newRig(t)
	r.prepare()
	for range 3 * MaxOpen {
		if err := r.q.Pull(time.Now(), 10*MaxBatch, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if r.q.Open() != MaxOpen || r.q.Waiting() != MaxOpen*MaxBatch {
		t.Errorf("%d pulls for %d slices are open", r.q.Open(), r.q.Waiting())
	}
	r.q.Reset()
	if err := r.q.Pull(time.Now(), 0, 1<<20); err != nil || r.q.Open() != 0 || r.q.Waiting() != 0 {
		t.Errorf("a pull of nothing: %v, %d open", err, r.q.Open())
	}
}

// A watch tells that a backlog is there, and takes none of it; below its threshold it is silent.
func TestWatch(t *testing.T) {
	r := newRig(t)
	r.prepare()
	r.publish(4, 10)
	if err := r.q.Watch(time.Now(), 5); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for r.info().NumWaiting == 0 { // until the broker has it
	}
	if !r.q.Watching() {
		t.Error("the watch is not open")
	}
	select {
	case m := <-r.in:
		t.Errorf("below the threshold %+v came", m)
	default:
	}
	r.publish(1, 10)
	if k, _ := r.next(); k != Backlog || r.q.Watching() || r.q.Open() != 0 {
		t.Errorf("at the threshold: %v", k)
	}
	if i := r.info(); i.NumAckPending != 0 || i.Delivered.Consumer != 0 || i.NumPending != 5 {
		t.Errorf("the watch took something: %+v", i)
	}
}

// Pulls without a threshold get the slices although a watch waits before them.
func TestPullBeforeWatch(t *testing.T) {
	r := newRig(t)
	r.prepare()
	if err := r.q.Watch(time.Now(), 3); err != nil {
		t.Fatal(err)
	}
	if err := r.q.Pull(time.Now(), 2, 1<<20); err != nil {
		t.Fatal(err)
	}
	r.publish(2, 10)
	for range 2 {
		if k, _ := r.next(); k != Work {
			t.Errorf("%v", k)
		}
	}
	if !r.q.Watching() {
		t.Error("the watch ended")
	}
}

// Without a stream, without a consumer, and when it is deleted, a pull says so.
func TestAbsent(t *testing.T) {
	r := newRig(t)
	pull := func(when string) {
		t.Helper()
		if err := r.q.Pull(time.Now(), 1, 1<<20); err != nil {
			t.Fatal(err)
		}
		if k, m := r.next(); k != Absent {
			t.Errorf("%s: %v %v", when, k, m.Header)
		}
	}
	pull("no stream")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := r.js.CreateStream(ctx, bus.Streams{}.Work(lane.Pool)); err != nil {
		t.Fatal(err)
	}
	pull("no consumer")
	c := bus.Streams{}.Consumer(subject)
	if _, err := r.js.CreateConsumer(ctx, bus.StreamName(lane.Pool), c); err != nil {
		t.Fatal(err)
	}
	if err := r.q.Pull(time.Now(), 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	for r.info().NumWaiting == 0 { // the broker handles pulls and deletions side by side
	}
	if err := r.js.DeleteConsumer(ctx, bus.StreamName(lane.Pool), c.Durable); err != nil {
		t.Fatal(err)
	}
	if k, m := r.next(); k != Absent {
		t.Errorf("a deleted consumer: %v %v", k, m.Header)
	}
}

// Work with the headers of a status is work: only the subject tells.
func TestForgedStatus(t *testing.T) {
	r := newRig(t)
	r.prepare()
	m := nats.NewMsg(subject)
	m.Header.Set("Status", "409")
	m.Header.Set("Description", "Consumer Deleted")
	if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := r.q.Pull(time.Now(), 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	if k, _ := r.next(); k != Work {
		t.Errorf("%v", k)
	}
}

// The end of pulling loses nothing, whenever it comes: every slice that the broker counts as
// delivered has come before closed is called, and none comes after.
func TestCloseLosesNothing(t *testing.T) {
	r := newRig(t)
	r.prepare()
	const total = 3000
	r.publish(total, 500)
	for end := time.Now().Add(patience); r.info().NumPending != total; { // the broker counts a moment later
		if time.Now().After(end) {
			t.Fatalf("the broker has %d slices of %d", r.info().NumPending, total)
		}
	}
	came := 0
	for round := range 12 {
		var mu sync.Mutex
		over, in := false, r.in
		q, err := New(r.nc, bus.StreamName(lane.Pool), bus.ConsumerName(subject), r.nc.NewInbox(),
			func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				if over {
					t.Error("a message came after the end")
				}
				in <- m
			})
		if err != nil {
			t.Fatal(err)
		}
		hear := func(m *nats.Msg) {
			if q.Heard(time.Now(), m) == Work {
				came++
			}
		}
		for range 1 + round%MaxOpen {
			if err := q.Pull(time.Now(), 1+round*20, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		quiet := time.NewTicker(QuietFor / 10)
		for !q.Quiet(time.Now()) { // the end comes in the middle of what flows
			select {
			case m := <-in:
				hear(m)
			case <-quiet.C:
			}
		}
		quiet.Stop()
		closed := make(chan struct{})
		q.Close(func() {
			mu.Lock()
			over = true
			mu.Unlock()
			close(closed)
		})
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatal("the queue does not end")
		}
		for len(in) > 0 {
			hear(<-in)
		}
		if i := r.info(); i.NumAckPending != came || int(i.NumPending) != total-came {
			t.Fatalf("round %d: %d slices came; the broker delivered %d and has %d", round, came,
				i.NumAckPending, i.NumPending)
		}
	}
	if came < 500 || came > total {
		t.Errorf("%d slices came", came)
	}
}

// A queue whose pulls are on their way to the broker for longer than QuietFor is not quiet: the
// broker would hear of its end just behind them. Asked whether work waits, it gives none.
func TestCloseBehindSlowPulls(t *testing.T) {
	r := newRig(t)
	r.prepare()
	const total, rounds, batch = 2000, 5, 100
	r.publish(total, 500)
	network := r.s.Slow()
	nc, came := network.Connect(bus.SidecarInboxes), 0
	for round := range rounds {
		in := make(chan *nats.Msg, total)
		q, err := New(nc, bus.StreamName(lane.Pool), bus.ConsumerName(subject), nc.NewInbox(),
			func(m *nats.Msg) { in <- m })
		if err != nil {
			t.Fatal(err)
		}
		network.HoldRequests(3 * QuietFor)
		for range MaxOpen {
			if err := q.Pull(time.Now(), batch, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		before := came
		hear := func(m *nats.Msg) {
			if q.Heard(time.Now(), m) == Work {
				came++
			}
		}
		quiet := time.NewTicker(QuietFor / 10)
		for !q.Quiet(time.Now()) {
			select {
			case m := <-in:
				hear(m)
			case <-quiet.C:
			}
		}
		quiet.Stop()
		closed := make(chan struct{})
		q.Close(func() { close(closed) })
		<-closed
		for len(in) > 0 {
			hear(<-in)
		}
		if i := r.info(); i.NumAckPending != came || came != before+MaxOpen*batch {
			t.Fatalf("round %d: %d slices came of %d that were asked for; the broker delivered %d of %d",
				round, came-before, MaxOpen*batch, i.NumAckPending-before, i.NumAckPending)
		}
	}
}

// A broker that has no work says so at once, to a queue whose pull goes on.
func TestABrokerWithoutWorkSaysSo(t *testing.T) {
	r := newRig(t)
	r.prepare()
	now := time.Now()
	if err := r.q.Pull(now, 2, 1<<20); err != nil {
		t.Fatal(err)
	}
	now = now.Add(QuietFor)
	if r.q.Quiet(now) {
		t.Error("quiet before the broker was asked")
	}
	if k, m := r.next(); k != Alive || m.Header.Get("Status") != "404" || !r.q.Quiet(now) {
		t.Errorf("%v %v", k, m.Header)
	}
	r.publish(1, 10)
	if k, m := r.next(); k != Work || r.q.Quiet(time.Now().Add(QuietFor)) {
		t.Errorf("%v %v, and quiet", k, m.Header)
	}
}

// A queue is quiet without a pull that may bring work, and when none has come for QuietFor and the
// broker has none.
func TestQuiet(t *testing.T) {
	r := newRig(t)
	r.prepare()
	now := time.Now()
	if err := r.q.Watch(now, 5); err != nil || !r.q.Quiet(now) {
		t.Errorf("a watch is not quiet: %v", err)
	}
	if err := r.q.Pull(now, 5, 1<<20); err != nil || r.q.Quiet(now) || r.q.Quiet(now.Add(QuietFor-1)) {
		t.Errorf("a pull is quiet too early: %v", err)
	}
	asked := func() string {
		t.Helper()
		if r.q.question == "" {
			t.Fatal("the broker was not asked")
		}
		return r.q.question
	}
	answer := func(to, status string) {
		t.Helper()
		m := &nats.Msg{Subject: to, Header: nats.Header{"Status": {status}}}
		if k := r.q.Heard(now, m); k != Alive {
			t.Errorf("an answer of %s is %v", status, k)
		}
	}
	now = now.Add(QuietFor)
	if r.q.Quiet(now) {
		t.Error("a pull is quiet before the broker was asked")
	}
	first := asked()
	if r.q.Heard(now, &nats.Msg{Subject: subject}) != Work || r.q.question != "" {
		t.Error("a slice came, and the question still counts")
	}
	answer(first, "404")
	now = now.Add(QuietFor)
	if r.q.Quiet(now) || asked() == first {
		t.Error("what the broker said before the slice counts")
	}
	answer(asked(), "408") // others' pulls take more than there is
	if r.q.Quiet(now) || r.q.question != "" {
		t.Error("asked twice at once")
	}
	for _, status := range []string{"404", "503"} {
		now = now.Add(QuietFor)
		if r.q.Quiet(now) {
			t.Error("quiet while work waits")
		}
		answer(asked(), status)
		if !r.q.Quiet(now) {
			t.Errorf("not quiet after %s", status)
		}
		r.q.Heard(now, &nats.Msg{Subject: subject})
	}
	r.q.Reset()
	if !r.q.Quiet(now) {
		t.Error("not quiet without a connection")
	}
	if err := r.q.Pull(now, 1, 1<<20); err != nil || r.q.Quiet(now.Add(Silence)) ||
		!r.q.Quiet(now.Add(Silence+1)) {
		t.Errorf("a broker that says nothing: %v", err)
	}
}

// A queue that hears nothing of an open pull is silent, one without a pull is not.
func TestSilence(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	if r.q.Silent(now.Add(time.Hour)) {
		t.Error("a queue without pulls is silent")
	}
	if err := r.q.Pull(now, 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	if r.q.Silent(now.Add(Silence)) || !r.q.Silent(now.Add(Silence+1)) {
		t.Error("silence is not counted from the pull on")
	}
	beat := &nats.Msg{Subject: r.q.inbox + "1", Header: nats.Header{"Status": {"100"}}}
	r.q.Heard(now.Add(time.Second), beat)
	if r.q.Silent(now.Add(Silence+1)) || !r.q.Silent(now.Add(Silence+time.Second+1)) {
		t.Error("a heartbeat does not count")
	}
}

// A queue that is closed while there is no connection has no subscription after the reconnect: the
// broker would hand slices to its open pulls, and nobody would read them.
func TestCloseWithoutConnection(t *testing.T) {
	r := newRig(t)
	r.prepare()
	if err := r.q.Pull(time.Now(), 3, 1<<20); err != nil {
		t.Fatal(err)
	}
	await := func(status nats.Status) {
		t.Helper()
		for end := time.Now().Add(patience); r.nc.Status() != status; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the connection is %v, not %v", r.nc.Status(), status)
			}
		}
	}
	r.s.Stop()
	await(nats.RECONNECTING)
	closed := make(chan struct{})
	r.q.Close(func() { close(closed) })
	r.s.Restart()
	await(nats.CONNECTED)
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("closed was not called")
	}
	if err := r.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	other := r.s.Connect(bus.SidecarInboxes)
	if _, err := other.Request(r.q.inbox+"1", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("somebody is subscribed to the replies of the pulls: %v", err)
	}
}
