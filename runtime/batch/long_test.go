package batch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// laneRunner counts the batches of long items on each device and fails the test on a batch that
// mixes short and long items.
type laneRunner struct {
	fakeRunner
	t    *testing.T
	mu   sync.Mutex
	now  [4]int  // long batches on each device
	most int     // on one device
	ids  []int32 // the first of each long batch
	fast time.Duration
}

func (r *laneRunner) RunPacked(ctx context.Context, device int, p *Packed) (Result, error) {
	over := 0
	for i := range p.CuSeqlens[1:] {
		if p.CuSeqlens[i+1]-p.CuSeqlens[i] > longTokens {
			over++
		}
	}
	if over != 0 && over != len(p.CuSeqlens)-1 {
		r.t.Errorf("a batch of %d sequences has %d long ones", len(p.CuSeqlens)-1, over)
	}
	if over == 0 {
		time.Sleep(r.fast)
		return r.fakeRunner.RunPacked(ctx, device, p)
	}
	r.mu.Lock()
	r.now[device]++
	r.most = max(r.most, r.now[device])
	r.ids = append(r.ids, p.IDs[0])
	r.mu.Unlock()
	time.Sleep(time.Duration(len(p.IDs)) * time.Millisecond)
	r.mu.Lock()
	r.now[device]--
	r.mu.Unlock()
	return r.fakeRunner.RunPacked(ctx, device, p)
}

// Long items hold one slot of each device, however many are queued, and their queues take turns.
// Short items of all models wait only for short ones.
func TestLongItemsLeaveASlot(t *testing.T) {
	for _, devices := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := &laneRunner{t: t, fast: 5 * time.Millisecond}
			dev := NewScheduler(devices, 2)
			a, b := NewQueue(dev, r, Options{MaxCost: 8192}), NewQueue(dev, r, Options{MaxCost: 8192})
			var longs []*Group
			for i := range 20 {
				longs = append(longs, submit(t, a, t.Context(), text(int32(100+i), 8192)),
					submit(t, b, t.Context(), text(int32(200+i), 8192)))
			}
			for i := range 2000 { // for 20 of the 328 s
				q := []*Queue{a, b}[i%2]
				start := time.Now()
				if _, err := submit(t, q, t.Context(), text(1, 20)).Wait(); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d != 5*time.Millisecond {
					t.Fatalf("%d devices: a short query took %v beside long texts", devices, d)
				}
				time.Sleep(5 * time.Millisecond)
			}
			for _, g := range longs {
				if _, err := g.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if r.most != 1 {
				t.Errorf("%d long batches at a time on a device", r.most)
			}
			for i, id := range r.ids {
				if want := int32(100 + i/2 + 100*(i%2)); devices == 1 && id != want {
					t.Fatalf("long batches ran in the order %v", r.ids)
				}
			}
			a.Close(ErrClosed)
			b.Close(ErrClosed)
		})
	}
}

// A long item makes progress under any load of short ones: its turn comes after one batch of each
// other lane.
func TestShortItemsDoNotStarveLongOnes(t *testing.T) {
	for _, slots := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := &laneRunner{t: t, fast: 10 * time.Millisecond}
			dev := NewSingleScheduler(slots)
			q, other := NewQueue(dev, r, Options{MaxItems: 24, MaxCost: 400}), NewQueue(dev, r, Options{
				MaxItems: 24, MaxCost: 400,
			})
			stop, stopOther := flood(t, q, 40), flood(t, other, 40)
			time.Sleep(time.Second)
			for range 2 {
				start := time.Now()
				if _, err := submit(t, q, t.Context(), text(2, 6000)).Wait(); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d > 6030*time.Millisecond {
					t.Errorf("%d slots: a long text of six seconds took %v", slots, d)
				}
			}
			stop()
			stopOther()
			q.Close(ErrClosed)
			other.Close(ErrClosed)
		})
	}
}

// An item is long if it has more tokens than a slab and is predicted to run for longer than
// longRun.
func TestLongItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(2)
		q := NewQueue(dev, &fakeRunner{}, Options{Work: Work{PerToken: 1000, PerPair: 1}})
		check := func(when string, tokens int, want laneKind) {
			t.Helper()
			if got := q.laneKindLocked(tokens, q.opt.Work.of(tokens)); got != want {
				t.Errorf("%s: %d tokens are of class %d, want %d", when, tokens, got, want)
			}
		}
		check("rate unknown", 512, short)
		check("rate unknown", 513, long)
		dev.pace[short].add(1, time.Second) // slow
		check("slow", 512, short)
		check("slow", 513, long)
		dev.pace[short] = pace{}
		dev.pace[long].add(48e6, time.Second) // 4,000 tokens are 20e6 and take 0.42 s
		check("known from long ones", 513, short)
		check("known from long ones", 1200, long)
		dev.pace[short].add(480e6, time.Second) // and now 0.042 s
		check("known", 4000, short)
		check("known", 5000, long)
		q.Close(ErrClosed)
	})
}

// Long items have separate room in the queue, so they cannot take the room of short ones.
func TestLongItemsHaveRoomOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(1), &fakeRunner{perToken: time.Millisecond},
			Options{MaxItems: 10, MaxBytes: 80_000})
		submit(t, q, t.Context(), text(1, 1000))
		for range 5 {
			submit(t, q, t.Context(), text(2, 1000))
		}
		full := q.Submit(t.Context(), NewGroup(t.Context(), 1), []Item{text(2, 1000)}, false)
		if e, ok := full.(*FullError); !ok || e.Limit != 5 || e.Pending != 5 {
			t.Errorf("six of five long items: %v", full)
		}
		if err := q.Submit(t.Context(), NewGroup(t.Context(), 3), append(chunk(3, 2, 1), text(2, 1000)),
			false); err == nil {
			t.Error("a request was taken in part")
		}
		if n := q.Stats().Items; n != 5 {
			t.Errorf("%d items are queued", n)
		}
		submit(t, q, t.Context(), chunk(3, 10, 1)...)
		if q.Room(1) == nil {
			t.Error("room for an eleventh short item")
		}
		q.Close(ErrClosed)
	})
}
