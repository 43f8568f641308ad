package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
