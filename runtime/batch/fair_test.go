package batch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// chunk returns n items of the same number of tokens, as one request has them.
func chunk(id int32, n, tokens int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i] = text(id, tokens)
		items[i].Index = i
	}
	return items
}

// An item that arrives while every slot is busy starts as soon as the device has no batch in
// flight, however few items wait.
func TestIdleDeviceStartsWhatWaited(t *testing.T) {
	for _, slots := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			dev := NewSingleScheduler(slots)
			r := &fakeRunner{perToken: time.Millisecond}
			q := NewQueue(dev, r, Options{
				MaxWait:     time.Minute,
				Coalesce:    time.Minute,
				MaxRequests: 2,
				Adaptive:    AdaptiveOptions{Disabled: true},
			})
			for range slots {
				submit(t, q, t.Context(), text(1, 50), text(1, 50)) // as many as may leave
			}
			time.Sleep(10 * time.Millisecond)
			g := submit(t, q, t.Context(), text(2, 1))
			start := time.Now()
			if _, err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d != 91*time.Millisecond {
				t.Errorf(
					"%d slots: answered after %v, want the 90 ms that the device was busy and 1 ms of work",
					slots, d)
			}
			q.Close(ErrClosed)
		})
	}
}

// A free slot goes to the queue that is due, not to a queue that has waited longer and is not due.
func TestDueLaneGetsTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(2)
		r := &fakeRunner{perToken: time.Millisecond}
		o := Options{MaxWait: time.Minute, Coalesce: time.Minute, MaxRequests: 4, Adaptive: AdaptiveOptions{
			Disabled: true,
		}}
		a, b := NewQueue(dev, r, o), NewQueue(dev, r, o)
		for range 2 {
			submit(t, a, t.Context(), chunk(1, 4, 25)...)
		}
		submit(t, a, t.Context(), chunk(1, 4, 100)...)
		time.Sleep(time.Millisecond)
		slow := submit(t, a, t.Context(), text(2, 1)) // joins what waits
		full := submit(t, b, t.Context(), chunk(3, 4, 1)...)
		start := time.Now()
		if _, err := full.Wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 104*time.Millisecond {
			t.Errorf("a full batch waited %v beside a free slot", d)
		}
		_, _ = slow.Wait()
		a.Close(ErrClosed)
		b.Close(ErrClosed)
	})
}

// The controller never sets a batch cost above MaxCost, and a full batch leaves at once.
func TestFullBatchLeaves(t *testing.T) {
	c := newController(AdaptiveOptions{TargetP50: 500 * time.Millisecond}, 15*time.Millisecond, 1000)
	now := time.Now()
	for range 2000 {
		now = now.Add(20 * time.Millisecond)
		c.requestDone(20 * time.Millisecond)
		c.batchDone(10*time.Millisecond, 1000, 10, now)
	}
	if c.cost != 1000 {
		t.Errorf("batches of 1,000 tokens at most leave at %d", c.cost)
	}
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(2), &fakeRunner{perToken: time.Millisecond},
			Options{MaxCost: 1000, MaxWait: time.Minute, Coalesce: time.Minute})
		q.ctl = c
		c.wait = time.Minute
		submit(t, q, t.Context(), text(1, 100))
		g := submit(t, q, t.Context(), chunk(2, 10, 100)...)
		start := time.Now()
		if _, err := g.Wait(); err != nil || time.Since(start) != time.Second {
			t.Errorf("a full batch came back after %v, %v; it runs for a second", time.Since(start), err)
		}
		q.Close(ErrClosed)
	})
}

// flood runs n clients until it is stopped or the test ends. Each requests one text at a time and
// tries again a millisecond after a refusal.
func flood(t *testing.T, q *Queue, n int) (stop func() (served int)) {
	var clients sync.WaitGroup
	var mu sync.Mutex
	served := 0
	end := make(chan struct{})
	for range n {
		clients.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-t.Context().Done():
					return
				default:
				}
				g := NewGroup(t.Context(), 1)
				if err := q.Submit(t.Context(), g, []Item{text(1, 100)}, false); err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				_, _ = g.Wait()
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	return func() int {
		close(end)
		clients.Wait()
		return served
	}
}

// Under steady overload the later chunks of an admitted request are queued in the order in which
// they came, before any request that came after them.
func TestAdmittedRequestIsFinishedUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: 100 * time.Microsecond}
		q := NewQueue(NewSingleScheduler(2), r, Options{
			MaxItems:   64,
			MaxCost:    400,
			MaxBacklog: time.Millisecond,
			Adaptive:   AdaptiveOptions{Disabled: true},
		})
		stop := flood(t, q, 100)
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		var order []int
		var mu sync.Mutex
		var waiting sync.WaitGroup
		for i := range 5 {
			waiting.Go(func() {
				g := NewGroup(t.Context(), 40)
				if err := q.Submit(t.Context(), g, chunk(2, 40, 100), true); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if _, err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Microsecond) // so that they arrive one after another
		}
		waiting.Wait()
		// At most 64 items before them and 8 on the device, then 5 chunks of 40: 272 items, 40 ms
		// for each 8.
		if took := time.Since(start); took > 34*40*time.Millisecond {
			t.Errorf("five chunks of 40 took %v", took)
		}
		for i, n := range order {
			if i != n {
				t.Fatalf("chunks were queued in the order %v", order)
			}
		}
		time.Sleep(time.Second)
		if served := stop(); served < 200 { // 8 in 40 ms when no request waits
			t.Errorf("%d other requests were served", served)
		}
		q.Close(ErrClosed)
	})
}

// A new request is refused while an admitted one waits, even if it would fit, and is taken when
// that has left.
func TestNobodyOvertakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(1), &fakeRunner{perToken: time.Millisecond},
			Options{MaxItems: 10, MaxRequests: 5})
		submit(t, q, t.Context(), text(0, 100))
		submit(t, q, t.Context(), chunk(1, 6, 1)...)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- q.Submit(ctx, NewGroup(ctx, 5), chunk(2, 5, 1), true) }()
		synctest.Wait()
		late := NewGroup(t.Context(), 4)
		second := make(chan error, 1)
		go func() { second <- q.Submit(t.Context(), late, chunk(3, 4, 1), true) }()
		synctest.Wait()
		var full *FullError
		if err := q.Submit(t.Context(), NewGroup(t.Context(), 1), chunk(4, 1, 1), false); !errors.As(err,
			&full) || full.Pending != 15 || full.Limit != 10 {
			t.Errorf("err %v, want a full queue of 15 items with those that wait", err)
		}
		if q.Room(1) == nil {
			t.Error("there is room beside one who waits")
		}
		if q.Stats().Items != 6 {
			t.Errorf("%d items are queued: a later chunk overtook an older one", q.Stats().Items)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("err %v", err)
		}
		if err := <-second; err != nil || q.Stats().Items != 10 {
			t.Errorf("%v, %d items: the chunk behind one that left must be queued at once",
				err, q.Stats().Items)
		}
		if _, err := late.Wait(); err != nil {
			t.Error(err)
		}
		if q.Room(1) != nil {
			t.Error("an empty queue has no room")
		}
		q.Close(ErrClosed)
	})
}

// Closing a queue ends the requests that wait for room and leaves nothing on the device.
func TestCloseEndsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(1)
		r := &fakeRunner{perToken: time.Millisecond}
		q, other := NewQueue(dev, r, Options{MaxItems: 4}), NewQueue(dev, r, Options{})
		submit(t, q, t.Context(), text(0, 1000))
		submit(t, q, t.Context(), chunk(1, 4, 1000)...) // long ones
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				g := NewGroup(t.Context(), 4)
				items := append(chunk(2, 2, 1), chunk(3, 2, 1000)...) // there is room only for the short ones
				for i := range items {
					items[i].Index = i
				}
				if err := q.Submit(t.Context(), g, items, true); !errors.Is(err, ErrClosed) {
					t.Errorf("err %v", err)
				}
				if _, err := g.Wait(); err == nil {
					t.Error("a request whose queue is gone has an answer")
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		go q.Close(ErrClosed)
		synctest.Wait()
		waiters.Wait()
		if time.Since(start) != 0 {
			t.Error("waiters waited for the batch in flight")
		}
		g := submit(t, other, t.Context(), text(4, 1))
		q.Close(ErrClosed) // a second time, waits like the first
		if time.Since(start) != time.Second {
			t.Errorf("closed after %v, with a batch of a second in flight", time.Since(start))
		}
		if _, err := g.Wait(); err != nil || time.Since(start) != 1001*time.Millisecond {
			t.Errorf("another queue's item: %v after %v", err, time.Since(start))
		}
		if dev.InFlight() != 0 || len(dev.lanes) != 0 {
			t.Errorf("%d slots taken and %d lanes listed", dev.InFlight(), len(dev.lanes))
		}
		other.Close(ErrClosed)
	})
}
