package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// A model that gets ten times what its workers can do keeps their whole throughput: the rest is
// refused with a Retry-After, and those that are accepted wait for a bounded time.
func TestOverload(t *testing.T) {
	const workers, offered, lasts, from = 4, 400, 60 * time.Second, 10 * time.Second
	pace := 100 * time.Millisecond // so 40 requests in a second
	bubble(t, 1, workers, nil, func(t *testing.T, q *Queue, w *world) {
		w.pace = pace
		var mu sync.Mutex
		var took []time.Duration
		refused, answered := 0, 0
		var all sync.WaitGroup
		start := time.Now()
		for n := range offered * int(lasts/time.Second) {
			time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / offered)))
			all.Go(func() {
				begun := time.Now()
				_, err := ask(t.Context(), q, fmt.Sprint("r", n), []string{"text"}, 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					took = append(took, time.Since(begun))
					if at := time.Since(start); at > from && at < lasts {
						answered++
					}
					return
				}
				refused++
				if e := errs.As(err); e.Code != errs.QueueFull || e.RetryAfter < time.Second ||
					e.RetryAfter > time.Minute {
					t.Errorf("%v, retry after %v", err, e.RetryAfter)
				}
			})
		}
		all.Wait()
		peak := float64(workers) * (lasts - from).Seconds() / pace.Seconds()
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		t.Logf("%d answered of a peak of %.0f, %d refused, p99 %v", answered, peak, refused, p99)
		if float64(answered) < 0.95*peak || p99 > 2*q.opt.MaxWait || refused < 20_000*8/10 {
			t.Errorf("%d answered of a peak of %.0f, %d refused, p99 %v", answered, peak, refused, p99)
		}
	})
}

// A model without a backlog has no rate, whatever its traffic: a burst after slow single requests
// is admitted. An empty queue admits whatever comes, also when its rate is known to be low.
func TestBurstsAreAdmitted(t *testing.T) {
	bubble(t, 1, 2, nil, func(t *testing.T, q *Queue, w *world) {
		w.pace = 50 * time.Millisecond
		for n := range 100 { // one at a time: 20 a second
			if _, err := ask(t.Context(), q, fmt.Sprint("single", n), []string{"text"}, 1); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for n := range 400 { // 10 s of work
			all.Go(func() {
				if _, err := ask(t.Context(), q, fmt.Sprint("burst", n), []string{"text"}, 1); err != nil {
					t.Errorf("burst: %v", err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		texts := make([]string, 1000) // 25 s of work in one request
		if _, err := ask(t.Context(), q, "large", texts, 1); err != nil {
			t.Errorf("into an empty queue: %v", err)
		}
	})
}

// Without a backlog nothing is measured; with one the rate is that of the answers; when the workers
// stall it falls.
func TestMeter(t *testing.T) {
	var m meter
	now := time.Now()
	step := func(d time.Duration, items int, waited time.Duration) {
		now = now.Add(d)
		m.taken(waited, now)
		m.done(items, now)
	}
	for range 100 {
		step(10*time.Millisecond, 50, time.Millisecond)
	}
	if m.rate(now) != 0 || m.waited(now) != time.Millisecond {
		t.Errorf("items that did not wait are counted: %v a second", m.rate(now))
	}
	for range 100 {
		step(100*time.Millisecond, 10, time.Second)
	}
	if r := m.rate(now); r < 95 || r > 110 || m.waited(now) != time.Second {
		t.Errorf("%v items a second, want 100", r)
	}
	m.empty(now)
	if m.waited(now) != 0 {
		t.Error("an empty queue has a backlog")
	}
	now = now.Add(time.Hour) // nothing waits
	if r := m.rate(now); r < 95 || r > 110 {
		t.Errorf("after a pause %v, want 100", r)
	}
	step(0, 0, time.Second)
	now = now.Add(30 * time.Second)
	if r := m.rate(now); r > 15 || m.waited(now) != 0 {
		t.Errorf("stalled workers still do %v", r)
	}
}

// What lies in the hands of a stopped worker, or waits for the broker, refuses nobody.
func TestAStallOfOthersRefusesNobody(t *testing.T) {
	bubble(t, 1, 2, nil, func(t *testing.T, q *Queue, w *world) {
		w.pace = 10 * time.Millisecond
		var all sync.WaitGroup
		for n := range 3000 { // 100 a second for 30 s
			time.Sleep(10 * time.Millisecond)
			switch n {
			case 500:
				for i := range 100 { // a worker takes what it can and is stopped
					all.Go(func() {
						_, err := ask(t.Context(), q, fmt.Sprint("held", i), []string{"text"}, 1)
						if err != nil {
							t.Errorf("held: %v", err)
						}
					})
					synctest.Wait()
					w.pull()
				}
			case 1500:
				w.connect(false)
				w.lose()
			case 2200:
				w.connect(true)
			}
			all.Go(func() {
				if _, err := ask(t.Context(), q, fmt.Sprint("r", n), []string{"text"}, 1); err != nil {
					t.Errorf("request %d: %v", n, err)
				}
			})
		}
		all.Wait()
	})
}

// SDKs that give up after 30 s have an answer before that; newer ones wait for 140 s. A gate whose
// time is up says the same as the queue.
func TestAnswersComeBeforeTheCallerLeaves(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		for version, want := range map[string]time.Duration{
			"0.3.4": 27 * time.Second, "0.7.3": 27 * time.Second,
			"0.10.1": 140 * time.Second, "": 140 * time.Second,
		} {
			if got := limitFor(q.opt.Timeout, caller(version)); got != want {
				t.Errorf("%q: %v, want %v", version, got, want)
			}
		}
		gate := admit.New(admit.Options{Timeout: 10 * time.Second})
		held, err := gate.Enter(admit.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer held.End()
		_, err = ask(held.Context(), q, "r", []string{"text"}, 1)
		if e := errs.As(err); e.Code != errs.QueueFull || e.RetryAfter == 0 {
			t.Errorf("%v", err)
		}
		left, cancel := context.WithCancelCause(t.Context())
		cancel(errs.ShuttingDown())
		_, err = ask(left, q, "r2", []string{"text"}, 1)
		if !errors.Is(err, &errs.Error{Code: errs.Draining}) {
			t.Errorf("a drain: %v", err)
		}
	})
}

// What has just begun to wait is no backlog, even where the rate that was measured is low: the
// batch that runs may be a long one. A refusal sends nobody away for longer than maxRetry.
func TestAYoungBacklogAdmits(t *testing.T) {
	now := time.Now()
	l := &line{untaken: 400, meter: meter{items: 1, seconds: 2}}
	l.meter.taken(300*time.Millisecond, now)
	if err := l.refuse(asker{}, 5*time.Second, now); err != nil {
		t.Errorf("a young backlog: %v", err)
	}
	l.meter.taken(time.Second, now)
	err := l.refuse(asker{}, 5*time.Second, now)
	if err == nil || err.RetryAfter < time.Second || err.RetryAfter > maxRetry {
		t.Errorf("an old one: %v", err)
	}
	fresh := &line{untaken: 400}
	fresh.meter.taken(time.Minute, now)
	fresh.meter.done(1, now.Add(meterTrusts/2))
	if err := fresh.refuse(asker{}, 5*time.Second, now.Add(meterTrusts/2)); err != nil {
		t.Errorf("measured for a moment: %v", err)
	}
}

// A Retry-After is whole seconds, at least one and at most maxRetry.
func TestRetryAfterIsAtLeastOne(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Second, 5 * time.Second, time.Minute} {
		for _, wait := range []time.Duration{0, 1, limit / 2, limit, limit + 1, 1500 * time.Millisecond,
			10 * time.Second, time.Hour, 1 << 62} {
			got := retryAfter(wait, limit)
			if got < time.Second || got > maxRetry || got%time.Second != 0 ||
				got < min(wait-limit/2, maxRetry) {
				t.Errorf("a wait of %v, limit %v: Retry-After %v", wait, limit, got)
			}
		}
	}
	now, l := time.Now(), &line{}
	if e := l.full(now); e.RetryAfter < time.Second || l.retry(now) < time.Second {
		t.Errorf("nobody knows how long work waits: Retry-After %v and %v", e.RetryAfter, l.retry(now))
	}
}

// Whatever bound of the broker a first publish meets, its request is refused as that of a full
// queue; any other refusal of the broker is tried again.
func TestEveryBoundOfTheBrokerIsAFullQueue(t *testing.T) {
	for code, full := range map[int]bool{
		10023: true, 10028: true, 10047: true, 10077: true, 10167: true, 10052: false, 10008: false,
	} {
		q, err := New(Options{Router: "gw"})
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest("r", q.line(lane, modelID), nil, work.Item{}, nil, []slice{{end: 1, bytes: 10}})
		r.next, r.slices[0].tries = 1, 1
		r.setLocked(&r.slices[0], sent, time.Now())
		q.acknowledged(r, 0, 0, &nats.Msg{Data: fmt.Appendf(nil,
			`{"stream":"S","error":{"code":503,"err_code":%d,"description":"no"}}`, code)}, time.Now())
		e := errs.As(r.err)
		refused := r.err != nil && e.Code == errs.QueueFull && e.RetryAfter >= time.Second
		if refused != full || !full && r.slices[0].state != queued {
			t.Errorf("code %d: %v, state %d", code, r.err, r.slices[0].state)
		}
	}
}
