package queue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// Between its looks at everything the keeper looks only at requests of which slices wait to be
// published, however many are pending.
func TestTheKeeperLooksAtWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := New(Options{Router: "gw"})
		if err != nil {
			t.Fatal(err)
		}
		q.broker = newWorld(1, 0)
		q.Connected()
		now := time.Now()
		l := q.line(lane, modelID)
		l.prepared = true
		list := make([]*request, 1000)
		for i := range list {
			r := newRequest(fmt.Sprint("r", i), l, nil, work.Item{}, nil, []slice{{end: 1, bytes: 10}})
			r.next, r.late = 1, now.Add(time.Minute)
			q.requests[r.id], list[i] = r, r
			r.setLocked(&r.slices[0], stored, now)
			r.slices[0].storedAt = now
		}
		looks := func(everything bool) int {
			before := q.keeper.looks
			q.pass(now, everything)
			return q.keeper.looks - before
		}
		if n := looks(true); n != 1000 {
			t.Errorf("%d looks at all of 1,000 requests", n)
		}
		if n := looks(false); n != 0 {
			t.Errorf("%d looks where nothing waits", n)
		}
		for _, r := range list[:3] {
			r.requeueLocked(&r.slices[0], true, time.Hour, now)
		}
		if n := looks(false); n != 3 || l.waiting != 3 {
			t.Errorf("%d looks where slices of 3 requests wait", n)
		}
		for _, r := range list[:3] {
			r.endLocked(now)
		}
		if n := looks(false); n != 0 || len(l.waiters) != 0 {
			t.Errorf("%d looks at what has ended", n)
		}
		synctest.Wait()
	})
}

// A line has at most maxUnacked slices, and maxUnackedBytes, published that the broker has not
// answered; what the keeper leaves goes when answers come.
func TestUnansweredPublishesAreBounded(t *testing.T) {
	bubble(t, 1, 0, func(o *Options) { o.MaxWait = -1 }, func(t *testing.T, q *Queue, w *world) {
		w.connect(false)
		const n = 3 * maxUnacked
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := ask(t.Context(), q, fmt.Sprint("r", i), []string{"text"}, 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		w.set(func() { w.mute = true })
		w.connect(true)
		time.Sleep(firstAck / 2)
		if published := w.publishes(); published != maxUnacked {
			t.Errorf("%d publishes are unanswered, want %d", published, maxUnacked)
		}
		w.set(func() { w.mute = false })
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for i := range 8 {
			workers.Go(func() { w.work(ctx, fmt.Sprint("w", i)) })
		}
		all.Wait()
		cancel()
		workers.Wait()
	})
}

// A slice of which nobody knows whether it was published goes again with the same id. When the
// stream is full by then, it waits for room, and is published before any new work; only a first
// try is refused.
func TestRetriedThenTheStreamIsFull(t *testing.T) {
	bubble(t, 1, 0, func(o *Options) { o.MaxWait = -1 }, func(t *testing.T, q *Queue, w *world) {
		prepare := func() { // the stream and the consumer
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); w.work(ctx, "w") }()
			if _, err := ask(t.Context(), q, "before", []string{"text"}, 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			<-ended
		}
		prepare()
		w.set(func() { w.mute = true })
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "first", []string{"text"}, 1)
			answered <- err
		}()
		time.Sleep(100 * time.Millisecond)
		w.set(func() { // the publish was lost
			w.mute, w.limit, w.stream = false, 0, nil
			clear(w.dedup)
		})
		time.Sleep(5 * time.Second)
		r := q.find("first")
		if r == nil {
			t.Fatalf("it was refused: %v", <-answered)
		}
		_, err := ask(t.Context(), q, "new", []string{"text"}, 1)
		if e := errs.As(err); e == nil || e.Code != errs.QueueFull {
			t.Errorf("new work: %v", err)
		}
		w.set(func() { w.limit = 1 })
		time.Sleep(time.Second)
		if m := w.pull(); m == nil || m.item.RequestID != "first" {
			t.Fatalf("then there is %+v", m)
		} else {
			w.run(t.Context(), "w", m)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// Where not all that waits may be published now, what was published before goes before new work.
func TestWhatWasPublishedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := New(Options{Router: "gw"})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(1, 0)
		w.queue, w.created, w.mute = q, time.Now(), true
		q.broker = w
		q.Connected()
		now := time.Now()
		l := q.line(lane, modelID)
		l.prepared = true
		const n = 20
		for i := range 2 * n {
			id := fmt.Sprint("r", i)
			r := newRequest(id, l, nil, work.Item{Operation: work.Detokenize, RequestID: id,
				ReplySubject: "_INBOX.gw." + id, Total: 1},
				[]msgp.Raw{msgp.AppendString(nil, "text")}, []slice{{end: 1, bytes: 10}})
			r.next, r.late = 1, now.Add(time.Minute)
			q.requests[r.id] = r
			s := &r.slices[0]
			switch {
			case i%4 == 0: // another attempt
				r.setLocked(s, taken, now)
				r.requeueLocked(s, true, 0, now)
			case i%4 == 1: // whose outcome is not known
				s.tries = 1
				fallthrough
			default:
				r.setLocked(s, queued, now)
			}
		}
		l.sent = maxUnacked - n // room for half of them
		q.pass(now, false)
		for _, m := range w.stream {
			if number, _ := strconv.Atoi(m.item.RequestID[1:]); number%4 > 1 {
				t.Errorf("%s went before what was published before", m.id)
			}
		}
		if len(w.stream) != n {
			t.Errorf("%d publishes, want %d", len(w.stream), n)
		}
		synctest.Wait()
	})
}

// The time of the publish is that of each slice's first: what is published again adds nothing.
func TestThePublishTimeIsTheFirst(t *testing.T) {
	q, err := New(Options{Router: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	q.broker = newWorld(1, 0)
	begun := time.Now()
	r := newRequest("r", q.line(lane, modelID), nil, work.Item{}, nil,
		[]slice{{end: 1, bytes: 10}, {first: 1, end: 2, bytes: 10}})
	r.next = 2
	at := func(i int, attempt uint32, after time.Duration) time.Duration {
		r.mu.Lock()
		r.setLocked(&r.slices[i], sent, begun)
		r.mu.Unlock()
		q.acknowledged(r, i, attempt, &nats.Msg{Data: []byte(`{"stream":"S","seq":7}`)}, begun.Add(after))
		return r.placed.Sub(begun)
	}
	first, all := at(0, 0, 1), at(1, 0, 2)
	r.requeueLocked(&r.slices[0], true, 0, begun)
	again := at(0, 1, 20)
	r.requeueLocked(&r.slices[1], false, 0, begun)
	if same := at(1, 0, 30); first != 1 || all != 2 || again != 2 || same != 2 {
		t.Errorf("placed after %d, %d, %d and %d, want 1, 2, 2, 2", first, all, again, same)
	}
}

// The broker's answer to an older attempt says nothing about the pending one.
func TestAnAnswerToAnOlderPublish(t *testing.T) {
	for name, data := range map[string]string{
		"stored": `{"stream":"S","seq":7}`, "full": `{"error":{"code":503,"err_code":10077}}`,
	} {
		q, err := New(Options{Router: "gw"})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		r := newRequest("r", q.line(lane, modelID), nil, work.Item{}, nil, []slice{{end: 1, bytes: 10}})
		s := &r.slices[0]
		r.next, s.tries = 1, 1
		r.setLocked(s, sent, now)
		r.requeueLocked(s, true, 0, now)
		r.setLocked(s, sent, now)
		q.acknowledged(r, 0, 0, &nats.Msg{Data: []byte(data)}, now)
		if s.state != sent || s.seq != 0 || !r.placed.IsZero() || r.line.fullUntil.After(now) {
			t.Errorf("%s: state %d, sequence %d", name, s.state, s.seq)
		}
	}
}

// taps is a world that shows the messages of work.
type taps struct {
	*world
	sent []*nats.Msg
}

func (b *taps) Publish(m *nats.Msg) error {
	b.sent = append(b.sent, m)
	return nil
}

// The stream keeps a message until the deadline of its work and no longer than a second more.
func TestWorkLeavesTheStreamAtItsDeadline(t *testing.T) {
	q, err := New(Options{Router: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	b := &taps{world: newWorld(1, 0)}
	q.broker = b
	now := time.Now()
	for left, want := range map[time.Duration]string{
		time.Second: "1s", time.Second + 1: "2s", 2300 * time.Millisecond: "3s", 140 * time.Second: "140s",
		time.Millisecond: "1s", -time.Second: "1s",
	} {
		r := newRequest("r", q.line(lane, modelID), nil, work.Item{}, nil, []slice{{end: 1, bytes: 10}})
		r.late = now.Add(left)
		b.sent = nil
		item := &work.Item{WorkItemID: "r.0", Attempt: 2, ReplySubject: "_INBOX.gw.r"}
		if err := q.publish(r, item, now); err != nil {
			t.Fatal(err)
		}
		if h := b.sent[0].Header; h.Get(bus.HeaderTTL) != want || h.Get(bus.HeaderMsgID) != "r.0#2" {
			t.Errorf("%v before the deadline: %v", left, h)
		}
	}
}

// setBack returns what now is when the host's clock is set back meanwhile: the monotonic reading,
// which follows the wall clock in a Time, goes on. Above 30 bits of nanoseconds are the seconds.
func setBack(now time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) -= uint64(by/time.Second) << 30
	return now
}

// What was lost is found, and what is on its way is left alone, after the host's clock was set
// back.
func TestTheClockIsSetBack(t *testing.T) {
	registry := prometheus.NewRegistry()
	q, err := New(Options{Router: "gw", Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	w := newWorld(1, 0)
	w.queue, w.created, w.mute = q, time.Now(), true
	q.broker = w
	q.Connected()
	l := q.line(lane, modelID)
	l.prepared = true
	ahead := time.Now().Add(time.Minute)
	now := setBack(ahead, time.Hour)
	if now.Sub(ahead) != 0 || !now.Round(0).Before(ahead.Round(0)) {
		t.Fatalf("set back, %v is %v", ahead, now)
	}
	for id, s := range map[string]state{"sent": sent, "taken": taken} {
		r := newRequest(id, l, nil, work.Item{Operation: work.Detokenize, RequestID: id,
			ReplySubject: "_INBOX.gw." + id, Total: 1},
			[]msgp.Raw{msgp.AppendString(nil, "text")}, []slice{{end: 1, bytes: 10}})
		r.next, r.late = 1, now.Add(time.Hour)
		q.requests[r.id] = r
		r.setLocked(&r.slices[0], s, now)
		r.slices[0].sentAt, r.slices[0].markedAt = now, now
	}
	count := func(cause string) float64 {
		return series(t, registry, "sie_gateway_queue_republishes_total", map[string]string{"cause": cause})
	}
	q.pass(now, true)
	if n := count("no_ack"); n != 0 {
		t.Errorf("%v slices are published again that were sent just now", n)
	}
	q.requests["sent"].endLocked(now)
	q.pass(now.Add(work.MarkTimeout+time.Second), true)
	if n := count("silent"); n != 1 {
		t.Errorf("%v slices without a mark are published again", n)
	}
}
