package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deviceRunner wraps a fakeRunner: it counts the batches of each device, and fails where fail says
// so.
type deviceRunner struct {
	fakeRunner
	fail func(device int, p *Packed) error

	mu       sync.Mutex
	now, max [4]int        // batches on each device
	batches  [4]int        // that succeeded
	seen     map[int32]int // runs of each id, including failed ones
}

func (r *deviceRunner) RunPacked(ctx context.Context, device int, p *Packed) (Result, error) {
	r.mu.Lock()
	r.now[device]++
	r.max[device] = max(r.max[device], r.now[device])
	if r.seen == nil {
		r.seen = make(map[int32]int)
	}
	for _, start := range p.CuSeqlens[:len(p.CuSeqlens)-1] {
		r.seen[p.IDs[start]]++
	}
	r.mu.Unlock()
	out, err := r.fakeRunner.RunPacked(ctx, device, p)
	if r.fail != nil && err == nil {
		err = r.fail(device, p)
	}
	r.mu.Lock()
	r.now[device]--
	if err == nil {
		r.batches[device]++
	}
	r.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	return out, nil
}

// Batches of one queue run on every device, no item runs twice, and a request's results are in
// order.
func TestGPUsShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &deviceRunner{fakeRunner: fakeRunner{perToken: time.Microsecond}}
		dev := NewScheduler(3, 2)
		q := NewQueue(dev, r, Options{MaxCost: 100})
		var items []Item
		for i := range 1000 {
			items = append(items, text(int32(i), 1+i%40))
		}
		res, err := submit(t, q, t.Context(), items...).Wait()
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range res {
			if id, n := binary.LittleEndian.Uint32(b[0]),
				binary.LittleEndian.Uint32(b[0][4:]); int(id) != i || int(n) != 1+i%40 {
				t.Fatalf("result %d is of item %d, %d tokens", i, id, n)
			}
			if r.seen[int32(i)] != 1 {
				t.Errorf("item %d ran %d times", i, r.seen[int32(i)])
			}
		}
		if r.max != [4]int{2, 2, 2, 0} {
			t.Errorf("batches in flight on the devices: %v at most, want two on each of three", r.max)
		}
		for device, n := range r.batches[:3] {
			if n < 50 { // of about 205
				t.Errorf("device %d ran %d batches: %v", device, n, r.batches)
			}
			if dev.BusyTime(device) < time.Millisecond {
				t.Errorf("device %d worked for %v", device, dev.BusyTime(device))
			}
		}
		synctest.Wait()
		if dev.InFlight() != 0 {
			t.Error("a slot was lost")
		}
		q.Close(ErrClosed)
	})
}

// A device without work takes a single item at once, whatever other devices do; the emptiest free
// device takes it.
func TestIdleGPUTakesALoneItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &deviceRunner{fakeRunner: fakeRunner{perToken: time.Millisecond}}
		dev := NewScheduler(2, 2)
		q := NewQueue(dev, r, Options{MaxWait: 20 * time.Millisecond})
		submit(t, q, t.Context(), text(1, 1000))
		synctest.Wait()
		start := time.Now()
		if _, err := submit(t, q, t.Context(), text(2, 1)).Wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Millisecond || r.batches[1] != 1 {
			t.Errorf("took %v with batches %v: the second device is idle", d, r.batches)
		}
		if w := dev.BusyTime(1); w != time.Millisecond {
			t.Errorf("the second device worked for %v", w)
		}
		q.Close(ErrClosed)
	})
}

// A lost device fails its batches and gets no more; the others do the rest. The last device stays
// and answers.
func TestLostGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		r := &deviceRunner{fakeRunner: fakeRunner{perToken: time.Millisecond}}
		r.fail = func(device int, _ *Packed) error {
			if device == 1 {
				return lost
			}
			return nil
		}
		dev := NewScheduler(2, 1)
		fatal := func(err error) bool { return errors.Is(err, lost) }
		q := NewQueue(dev, r, Options{MaxRequests: 1, MaxCost: 10, Fatal: fatal})
		other := NewQueue(dev, r, Options{MaxRequests: 1, MaxCost: 10, Fatal: fatal})
		var groups []*Group
		for i := range 40 {
			groups = append(groups, submit(t, []*Queue{q, other}[i%2], t.Context(), text(int32(i), 10)))
		}
		failed := 0
		for _, g := range groups {
			if _, err := g.Wait(); errors.Is(err, lost) {
				failed++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if failed != 1 || r.batches != [4]int{39, 0, 0, 0} {
			t.Errorf(
				"%d items failed and %v batches came through, want one on the lost device and 39 on the other",
				failed, r.batches)
		}
		r.fail = func(int, *Packed) error { return lost }
		for range 3 {
			if _, err := submit(t, q, t.Context(), text(1, 1)).Wait(); !errors.Is(err, lost) {
				t.Errorf("err %v from the last device", err)
			}
		}
		q.Close(ErrClosed)
		other.Close(ErrClosed)
		if dev.InFlight() != 0 {
			t.Error("a slot was lost")
		}
	})
}

// A batch that lacks memory runs again once some is free, then in halves. Only an item that cannot
// run alone fails.
func TestNoMemory(t *testing.T) {
	short := errors.New("no memory")
	for name, c := range map[string]struct {
		room      int // tokens that the device can run
		evictable int // times that room can be made
		gain      int // tokens each time
		want      Recovery
		failed    []int32 // items
	}{
		"room is made":          {room: 10, evictable: 5, gain: 100, want: Recovery{Evictions: 1}},
		"too little is made":    {room: 40, evictable: 1, gain: 5, want: Recovery{Evictions: 1, Splits: 1}},
		"none is made":          {room: 20, want: Recovery{Splits: 4}},
		"one item is too large": {room: 15, want: Recovery{Splits: 7, Failed: 1}, failed: []int32{3}},
		"room is made for one alone at last": {room: 14, evictable: 2, gain: 1,
			want: Recovery{Evictions: 2, Splits: 5}},
		"nothing fits": {room: 0, want: Recovery{Splits: 7, Failed: 8},
			failed: []int32{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room, evictable := c.room, c.evictable
				var got []Recovery
				r := &deviceRunner{fail: func(_ int, p *Packed) error {
					if len(p.IDs) > room {
						return short
					}
					return nil
				}}
				q := NewQueue(NewSingleScheduler(1), r, Options{
					MaxRequests:   8,
					MaxWait:       time.Hour,
					Coalesce:      time.Hour,
					IdleCoalesce:  time.Hour,
					CoalesceRatio: 1,
					NoMemory:      func(err error) bool { return errors.Is(err, short) },
					Recovered:     func(r Recovery) { got = append(got, r) },
					MakeRoom: func() bool {
						if evictable == 0 {
							return false
						}
						evictable--
						room += c.gain
						return true
					}})
				groups := make([]*Group, 8) // 8 items of 8 tokens each, the fourth of 16
				for i := range groups {
					n := 8
					if i == 3 {
						n = 16
					}
					groups[i] = submit(t, q, t.Context(), text(int32(i), n))
				}
				for i, g := range groups {
					res, err := g.Wait()
					if slices.Contains(c.failed, int32(i)) != errors.Is(err, short) ||
						(err == nil && binary.LittleEndian.Uint32(res[0][0]) != uint32(i)) {
						t.Errorf("item %d: %v", i, err)
					}
				}
				synctest.Wait()
				if len(got) != 1 || got[0] != c.want {
					t.Errorf("recovery %+v, want %+v", got, c.want)
				}
				if !q.Idle() {
					t.Error("the queue is not idle")
				}
				q.Close(ErrClosed)
			})
		})
	}
}

// A queue with items or with a batch in flight is not idle.
func TestIdleQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(1), &fakeRunner{perToken: time.Millisecond}, Options{})
		running := submit(t, q, t.Context(), text(1, 10))
		synctest.Wait()
		if q.Idle() {
			t.Error("idle with a batch in flight")
		}
		queued := submit(t, q, t.Context(), text(1, 10))
		_, _ = running.Wait()
		if q.Idle() {
			t.Error("idle with an item queued")
		}
		_, _ = queued.Wait()
		synctest.Wait()
		if !q.Idle() {
			t.Error("not idle at the end")
		}
		q.Close(ErrClosed)
	})
}
