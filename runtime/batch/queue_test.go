package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeRunner answers each sequence with its first id and its length in output 0, after a time per
// token.
type fakeRunner struct {
	mu       sync.Mutex
	batches  []int // sequences of each batch
	tokens   []int
	perToken time.Duration
	fail     func(p *Packed) error
	now, max int
}

func (r *fakeRunner) RunPacked(_ context.Context, device int, p *Packed) (Result, error) {
	r.mu.Lock()
	r.batches = append(r.batches, len(p.CuSeqlens)-1)
	r.tokens = append(r.tokens, len(p.IDs))
	r.now++
	r.max = max(r.max, r.now)
	r.mu.Unlock()
	time.Sleep(time.Duration(len(p.IDs)) * r.perToken)
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(p); err != nil {
			return Result{}, err
		}
	}
	place := p.Outputs[0]
	out := make([]byte, place.Bytes)
	for i := range place.Specs {
		a, b := p.CuSeqlens[i], p.CuSeqlens[i+1]
		first := int32(-1)
		if a < b {
			first = p.IDs[a]
		}
		binary.LittleEndian.PutUint32(out[place.Offsets[i]:], uint32(first))
		binary.LittleEndian.PutUint32(out[place.Offsets[i]+4:], uint32(b-a))
	}
	res := Result{out}
	for o := 1; o < len(p.Outputs); o++ {
		res[o] = make([]byte, p.Outputs[o].Bytes)
	}
	return res, nil
}

func text(id int32, n int) Item {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = id
	}
	return Item{Inputs: Inputs{IDs: ids}, Specs: []Spec{{Bytes: 8}}}
}

func submit(t *testing.T, q *Queue, ctx context.Context, items ...Item) *Group {
	t.Helper()
	g := NewGroup(ctx, len(items))
	for i := range items {
		items[i].Index = i
	}
	if err := q.Submit(ctx, g, items, false); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLoneItemLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(2), &fakeRunner{}, Options{})
		start := time.Now()
		if _, err := submit(t, q, t.Context(), text(7, 5)).Wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("a lone item on an idle device waited %v", d)
		}
		q.Close(ErrClosed)
	})
}

func TestBatchGrowsWhileDeviceIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(1), r, Options{MaxRequests: 4, MaxCost: 1000})
		groups := []*Group{submit(t, q, t.Context(), text(1, 50))}
		synctest.Wait()
		for i := range 100 {
			groups = append(groups, submit(t, q, t.Context(), text(int32(i), 5)))
		}
		for _, g := range groups {
			if _, err := g.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.batches) != 2 || r.batches[1] != 100 {
			t.Errorf("batches %v: items that arrive while every slot is busy should share one batch",
				r.batches)
		}
		q.Close(ErrClosed)
	})
}

func TestWaitAndCoalesceBoundTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(2), r, Options{MaxWait: 20 * time.Millisecond})
		submit(t, q, t.Context(), text(1, 512)) // half a second of work in the first slot
		synctest.Wait()
		start := time.Now()
		g := submit(t, q, t.Context(), text(2, 1))
		if _, err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 11*time.Millisecond { // half of the wait, then 1 ms of work
			t.Errorf("the second slot was used after %v", d)
		}
		start = time.Now()
		stop := time.After(200 * time.Millisecond)
		var firstOf *Group
	steady:
		for { // an item every 2 ms never pauses long enough to coalesce: the wait must close the batch
			g := submit(t, q, t.Context(), text(3, 1))
			if firstOf == nil {
				firstOf = g
			}
			select {
			case <-stop:
				t.Fatal("never closed")
			case <-firstOf.done:
				break steady
			case <-time.After(2 * time.Millisecond):
			}
		}
		if d := time.Since(start); d < 20*time.Millisecond || d > 40*time.Millisecond {
			t.Errorf("steady arrivals delayed the first item by %v", d)
		}
		q.Close(ErrClosed)
	})
}

func TestOrderSplitAndOversize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Microsecond}
		q := NewQueue(NewSingleScheduler(2), r, Options{MaxCost: 100})
		var items []Item
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 1000 {
			n := rng.IntN(60)
			if i%100 == 50 {
				n = 150 // larger than a batch: runs alone
			}
			items = append(items, text(int32(i), n))
		}
		res, err := submit(t, q, t.Context(), items...).Wait()
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range res {
			id, n := int32(binary.LittleEndian.Uint32(b[0])), int(binary.LittleEndian.Uint32(b[0][4:]))
			if n != len(items[i].IDs) || (n > 0 && id != int32(i)) {
				t.Fatalf("result %d is of item %d, %d tokens", i, id, n)
			}
		}
		for i, n := range r.tokens {
			if n > 100 && r.batches[i] != 1 {
				t.Errorf("a batch of %d sequences has %d tokens", r.batches[i], n)
			}
		}
		if r.max != 2 {
			t.Errorf("%d batches in flight at most, want 2", r.max)
		}
		q.Close(ErrClosed)
	})
}

func TestFullQueueAndRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(1), r, Options{MaxItems: 10, MaxRequests: 5})
		submit(t, q, t.Context(), text(0, 100))
		synctest.Wait()
		for range 10 {
			submit(t, q, t.Context(), text(1, 1))
		}
		if q.Room(1) == nil {
			t.Error("a full queue has room")
		}
		g := NewGroup(t.Context(), 1)
		if err := q.Submit(t.Context(), g, []Item{text(2, 1)}, false); !errors.Is(err, ErrFull) {
			t.Fatalf("err %v, want ErrFull", err)
		}
		// waits for the first batch
		if err := q.Submit(t.Context(), g, []Item{text(2, 1)}, true); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		submit(t, q, t.Context(), text(0, 100))
		synctest.Wait()
		for range 10 {
			submit(t, q, t.Context(), text(1, 1))
		}
		if err := q.Submit(ctx, g, []Item{text(2, 1)}, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("err %v, want the context's", err)
		}
		q.Close(ErrClosed)
	})
}

func TestCancelledItemsDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(1), r, Options{})
		submit(t, q, t.Context(), text(0, 100))
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("client left")
		var groups []*Group
		for range 5 {
			groups = append(groups, submit(t, q, ctx, text(1, 10)))
		}
		keep := submit(t, q, t.Context(), text(2, 1))
		cancel(gone)
		for _, g := range groups {
			if _, err := g.Wait(); !errors.Is(err, gone) {
				t.Errorf("err %v, want the cause", err)
			}
		}
		if _, err := keep.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(r.tokens) != 2 || r.tokens[1] != 1 {
			t.Errorf("ran batches of %v tokens: cancelled items must not run", r.tokens)
		}
		q.Close(ErrClosed)
	})
}

func TestDeadlineDropsQueuedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(1), r, Options{})
		submit(t, q, t.Context(), text(0, 100))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := submit(t, q, ctx, text(1, 10)).Wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err %v", err)
		}
		q.Close(ErrClosed)
		if len(r.tokens) != 1 {
			t.Errorf("ran %v", r.tokens)
		}
	})
}

func TestBadItemFailsOnlyItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad item")
		r := &fakeRunner{fail: func(p *Packed) error {
			for _, id := range p.IDs {
				if id == 13 {
					return bad
				}
			}
			return nil
		}}
		dev := NewSingleScheduler(1)
		q := NewQueue(dev, r, Options{})
		var groups []*Group
		for i := range 40 {
			groups = append(groups, submit(t, q, t.Context(), text(int32(i), 3)))
		}
		for i, g := range groups {
			_, err := g.Wait()
			if (i == 13) != errors.Is(err, bad) || (i != 13 && err != nil) {
				t.Errorf("group %d: %v", i, err)
			}
		}
		synctest.Wait()
		if dev.InFlight() != 0 {
			t.Error("a slot was lost")
		}
		q.Close(ErrClosed)
	})
}

func TestTwoQueuesShareTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r1, r2 := &fakeRunner{perToken: time.Millisecond}, &fakeRunner{perToken: time.Millisecond}
		dev := NewSingleScheduler(2)
		a := NewQueue(dev, r1, Options{MaxCost: 10, MaxRequests: 1})
		b := NewQueue(dev, r2, Options{MaxCost: 10, MaxRequests: 1})
		var last *Group
		for range 100 {
			last = submit(t, a, t.Context(), text(1, 10))
		}
		synctest.Wait()
		start := time.Now()
		if _, err := submit(t, b, t.Context(), text(2, 10)).Wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 30*time.Millisecond {
			t.Errorf("a busy neighbour held the other model's query for %v", d)
		}
		if _, err := last.Wait(); err != nil {
			t.Fatal(err)
		}
		a.Close(ErrClosed)
		b.Close(ErrClosed)
		if dev.InFlight() != 0 {
			t.Error("a slot was lost")
		}
	})
}

func TestCloseFailsQueuedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(NewSingleScheduler(1), r, Options{})
		running := submit(t, q, t.Context(), text(0, 10))
		synctest.Wait()
		queued := submit(t, q, t.Context(), text(1, 1))
		gone := errors.New("unloaded")
		q.Close(gone)
		if _, err := running.Wait(); err != nil {
			t.Errorf("the running batch must finish: %v", err)
		}
		if _, err := queued.Wait(); !errors.Is(err, gone) {
			t.Errorf("err %v", err)
		}
		g := NewGroup(t.Context(), 1)
		if err := q.Submit(t.Context(), g, []Item{text(1, 1)}, false); !errors.Is(err, ErrClosed) {
			t.Errorf("err %v", err)
		}
	})
}

func TestController(t *testing.T) {
	c := newController(AdaptiveOptions{}, 15*time.Millisecond, 16384)
	now := time.Now()
	for range 10 {
		c.batchDone(20*time.Millisecond, 16384, 10, now)
	}
	if !c.calibrated || c.target != 30 {
		t.Fatalf("target %v after calibration, want 1.5 times 20 ms", c.target)
	}
	for range 20 {
		c.requestDone(10 * time.Millisecond) // 20 ms of headroom
	}
	for range 10 {
		c.batchDone(20*time.Millisecond, 16384, 10, now)
	}
	if c.wait != 21*time.Millisecond { // 15 + 0.3·20, no time passed for the integral
		t.Errorf("wait %v", c.wait)
	}
	if c.cost != 16384 {
		t.Errorf("cost %d", c.cost)
	}
	for range 200 {
		c.requestDone(200 * time.Millisecond)
	}
	for i := range 405 {
		c.batchDone(20*time.Millisecond, 16384, 10, now.Add(time.Duration(i)*100*time.Millisecond))
	}
	if c.wait != 15*time.Millisecond || c.cost != 4096 {
		t.Errorf("overloaded: wait %v cost %d, want both at their floors", c.wait, c.cost)
	}
	for range starvationRounds {
		c.batchDone(time.Millisecond, 10, 1, now)
	}
	if c.cost != 4096+(16384-4096)/2 {
		t.Errorf("starved: cost %d, want half-way back", c.cost)
	}
}
