package batch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// oneDevice runs batches one after another, as a CPU does. Each takes the time that its work needs
// at the rate.
type oneDevice struct {
	fakeRunner
	turn chan struct{} // holds one token
	work Work
	rate float64 // work a second
	seen func(p *Packed)
}

func newOneDevice(work Work, rate float64) *oneDevice {
	return &oneDevice{turn: make(chan struct{}, 1), work: work, rate: rate}
}

func (d *oneDevice) RunPacked(ctx context.Context, device int, p *Packed) (Result, error) {
	if d.seen != nil {
		d.seen(p)
	}
	var work float64
	for i := range p.CuSeqlens[1:] {
		work += d.work.of(int(p.CuSeqlens[i+1] - p.CuSeqlens[i]))
	}
	d.turn <- struct{}{}
	time.Sleep(time.Duration(work / d.rate * float64(time.Second)))
	<-d.turn
	return d.fakeRunner.RunPacked(ctx, device, p)
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within*want }

// The measured rate is the device's, whatever the lengths, the size of batches and the number of
// queues that share it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := Work{PerToken: 100, PerPair: 1}
		r := newOneDevice(work, 1e6)
		dev := NewSingleScheduler(2)
		a, b := NewQueue(dev, r, Options{Work: work, MaxCost: 1000}), NewQueue(dev, r, Options{
			Work: work, MaxCost: 500,
		})
		var groups []*Group
		for i := range 400 {
			groups = append(groups, submit(t, []*Queue{a, b}[i%2], t.Context(), text(1, 10+i%300)))
		}
		for _, g := range groups {
			_, _ = g.Wait()
		}
		synctest.Wait()
		if got := dev.pace[short].rate(); !near(got, 1e6, 0.02) {
			t.Errorf("rate %.0f, want 1e6", got)
		}
		if dev.pace[long].rate() != 0 {
			t.Error("no long item ran")
		}
		a.Close(ErrClosed)
		b.Close(ErrClosed)
	})
}

// Batches of a few tokens and failed batches do not change the rate.
func TestPaceWithoutRepresentativeBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRunner{perToken: time.Millisecond}
		dev := NewSingleScheduler(1)
		q := NewQueue(dev, r, Options{MaxCost: 1600})
		for range 20 {
			_, _ = submit(t, q, t.Context(), text(1, 99)).Wait()
		}
		synctest.Wait()
		if got := dev.pace[short].rate(); got != 0 {
			t.Errorf("rate %v of batches of a sixteenth", got)
		}
		r.fail = func(*Packed) error { return errors.New("bad") }
		_, _ = submit(t, q, t.Context(), text(1, 400)).Wait()
		synctest.Wait()
		if got := dev.pace[short].rate(); got != 0 {
			t.Errorf("rate %v of a batch that failed", got)
		}
		r.fail = nil
		_, _ = submit(t, q, t.Context(), text(1, 100)).Wait()
		synctest.Wait()
		if got := dev.pace[short].rate(); got != 1000 {
			t.Errorf("rate %v, want 1,000", got)
		}
		q.Close(ErrClosed)
	})
}

// A failed batch does not move the work of other batches into a busy period in which it was not
// done.
func TestPaceBesideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOneDevice(Work{PerToken: 1}, 1000)
		r.fail = func(p *Packed) error {
			if p.IDs[0] == 2 {
				return errors.New("bad")
			}
			return nil
		}
		dev := NewSingleScheduler(2)
		q := NewQueue(dev, r,
			Options{MaxCost: 1000, MaxRequests: 1, Adaptive: AdaptiveOptions{Disabled: true}})
		var groups []*Group
		for i := range 40 {
			groups = append(groups, submit(t, q, t.Context(), text(int32(1+i%3), 500)))
		}
		for _, g := range groups {
			_, _ = g.Wait()
			dev.mu.Lock()
			got := dev.pace[short].rate()
			dev.mu.Unlock()
			if got > 1000.5 {
				t.Fatalf("rate %v, of a device that does 1,000", got)
			}
		}
		synctest.Wait()
		q.Close(ErrClosed)
	})
}

// A batch that ran at the same time as a failed one does not change the rate: part of its time was
// discarded with the failure.
func TestPaceIgnoresRunsBesideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(2)
		r := &fakeRunner{perToken: time.Millisecond, fail: func(p *Packed) error {
			if p.IDs[0] == 2 {
				return errors.New("bad")
			}
			return nil
		}}
		q := NewQueue(dev, r, Options{MaxCost: 1000, MaxRequests: 1})
		beside := submit(t, q, t.Context(), text(1, 500))
		_, _ = submit(t, q, t.Context(), text(2, 499)).Wait() // a millisecond before the other
		_, _ = beside.Wait()
		synctest.Wait()
		if got := dev.pace[short].rate(); got != 0 {
			t.Errorf("rate %v of a batch whose time is not known", got)
		}
		_, _ = submit(t, q, t.Context(), text(1, 500)).Wait()
		synctest.Wait()
		if got := dev.pace[short].rate(); got != 1000 {
			t.Errorf("rate %v of the next one, want 1,000", got)
		}
		q.Close(ErrClosed)
	})
}

// A batch that is full by its predicted run time leaves at once.
func TestBatchFullByTimeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(2)
		r := &fakeRunner{perToken: time.Millisecond}
		q := NewQueue(dev, r, Options{
			MaxBacklog: 15 * time.Second,
			MaxWait:    time.Hour,
			Coalesce:   time.Hour,
			Adaptive:   AdaptiveOptions{Disabled: true},
		})
		_, _ = submit(t, q, t.Context(), chunk(1, 4, 500)...).Wait() // the pace is known
		synctest.Wait()
		submit(t, q, t.Context(), text(2, 500)) // keeps one slot
		start := time.Now()
		g := submit(t, q, t.Context(), chunk(3, 4, 500)...) // 2 s, more than a tenth of the bound
		submit(t, q, t.Context(), text(2, 100))
		time.Sleep(time.Millisecond)
		if dev.InFlight() != 2 {
			t.Errorf("2 s of work wait beside a free slot")
		}
		_, _ = g.Wait()
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("they took %v", d)
		}
		q.Close(ErrClosed)
	})
}

// learned returns a queue on a device of one slot with a known rate of one token a millisecond.
func learned(t *testing.T, dev *Scheduler, r Runner, o Options) *Queue {
	o.MaxCost, o.Adaptive.Disabled = 1000, true
	q := NewQueue(dev, r, o)
	_, _ = submit(t, q, t.Context(), text(1, 500)).Wait()
	synctest.Wait()
	if got := dev.pace[short].rate(); got != 1000 {
		t.Fatalf("rate %v, want 1,000", got)
	}
	return q
}

// The predicted time of batches in flight and queued items counts. A new item is refused when that
// time exceeds the bound, and is accepted after its RetryAfter.
func TestRefusesWhatWouldWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(1)
		q := learned(t, dev, &fakeRunner{perToken: time.Millisecond}, Options{MaxBacklog: 4 * time.Second})
		submit(t, q, t.Context(), text(1, 500)) // runs
		time.Sleep(100 * time.Millisecond)
		for range 10 {
			submit(t, q, t.Context(), text(2, 400)) // 0.4 s in flight, then 0.4 s each
		}
		var full *FullError
		err := q.Submit(t.Context(), NewGroup(t.Context(), 1), []Item{text(3, 1)}, false)
		if !errors.As(err, &full) || !errors.Is(err, ErrFull) ||
			full.Wait.Round(time.Millisecond) != 4400*time.Millisecond ||
			full.RetryAfter.Round(time.Millisecond) != 2400*time.Millisecond || full.Pending != 10 {
			t.Fatalf("%v: %+v, want a wait of 4.4 s, and to come again when 2 s of it are left", err, full)
		}
		if room := q.Room(1); room == nil || room.Wait != full.Wait {
			t.Errorf("room: %+v", room)
		}
		if err := q.Submit(t.Context(), NewGroup(t.Context(), 1), []Item{text(3, 1)}, true); err != nil {
			t.Errorf("a later chunk of an admitted request: %v", err)
		}
		time.Sleep(full.RetryAfter)
		if room := q.Room(1); room != nil {
			t.Errorf("no room after the time that was told: %+v", room)
		}
		q.Close(ErrClosed)
	})
}

// An empty queue takes any request, however long it runs; a request's own items do not count.
func TestEmptyQueueTakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewSingleScheduler(1)
		q := learned(t, dev, &fakeRunner{perToken: time.Millisecond},
			Options{MaxBacklog: 100 * time.Millisecond})
		submit(t, q, t.Context(), text(1, 512)) // in flight for longer than the bound
		submit(t, q, t.Context(), chunk(2, 100, 500)...)
		if q.Room(1) == nil {
			t.Error("50 s are queued, and one more was taken")
		}
		q.Close(ErrClosed)
	})
}

// No request is refused while the wait cannot be predicted.
func TestUnknownPaceAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewSingleScheduler(1), &fakeRunner{perToken: time.Second},
			Options{MaxBacklog: time.Millisecond})
		for range 50 {
			submit(t, q, t.Context(), text(1, 100))
		}
		q.Close(ErrClosed)
	})
}

// Without MaxBacklog there is no bound.
func TestNoBacklogBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := learned(t, NewSingleScheduler(1), &fakeRunner{perToken: time.Millisecond}, Options{})
		for range 200 {
			submit(t, q, t.Context(), text(1, 500))
		}
		q.Close(ErrClosed)
	})
}

// Of other queues only the batches that run first count: as many as their turns give them, and no
// long ones.
func TestOtherQueuesCount(t *testing.T) {
	for name, c := range map[string]struct {
		other func(t *testing.T, q *Queue)
		want  time.Duration // of the wait beyond 2 s in flight and queued here
	}{
		"none": {func(*testing.T, *Queue) {}, 0},
		"a little": {func(t *testing.T, q *Queue) { submit(t, q, t.Context(), text(1, 300)) },
			300 * time.Millisecond},
		// of 10 batches 3
		"as many turns": {func(t *testing.T, q *Queue) { submit(t, q, t.Context(), chunk(1, 20, 500)...) },
			3 * time.Second},
		"long ones": {func(t *testing.T, q *Queue) { submit(t, q, t.Context(), chunk(1, 2, 600)...) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dev := NewSingleScheduler(1)
				r := &fakeRunner{perToken: time.Millisecond}
				q := learned(t, dev, r, Options{MaxBacklog: time.Hour})
				other := NewQueue(dev, r, Options{MaxCost: 1000})
				submit(t, q, t.Context(), text(1, 500))
				submit(t, q, t.Context(), chunk(2, 3, 500)...) // two batches
				c.other(t, other)
				dev.mu.Lock()
				wait, known := dev.waitLocked(&q.lanes[short], time.Now())
				dev.mu.Unlock()
				if wait -= 2 * time.Second; !known || wait.Round(time.Millisecond) != c.want {
					t.Errorf("%v for the other queue, want %v", wait, c.want)
				}
				q.Close(ErrClosed)
				other.Close(ErrClosed)
			})
		})
	}
}

// The remaining devices share the work.
func TestGPUsShareTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := NewScheduler(3, 1)
		q := learned(t, dev, &fakeRunner{perToken: time.Millisecond},
			Options{MaxBacklog: time.Hour, MaxRequests: 1})
		dev.lose(2)
		submit(t, q, t.Context(), text(1, 500), text(1, 500))
		submit(t, q, t.Context(), text(1, 500), text(1, 500))
		submit(t, q, t.Context(), text(1, 500), text(1, 500))
		dev.mu.Lock()
		wait, _ := dev.waitLocked(&q.lanes[short], time.Now())
		dev.mu.Unlock()
		if wait != 1500*time.Millisecond {
			t.Errorf("six items of half a second on two devices take %v, want 1.5 s", wait)
		}
		q.Close(ErrClosed)
	})
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ wait, limit, want time.Duration }{
		{5100 * time.Millisecond, 5 * time.Second, 2600 * time.Millisecond},
		{time.Second, 10 * time.Millisecond, time.Second},
		{20 * time.Millisecond, 10 * time.Millisecond, time.Second},
		{time.Hour, 5 * time.Second, time.Minute}} {
		if got := retryAfter(c.wait, c.limit); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.wait, c.limit, got, c.want)
		}
	}
}

// A batch of short items runs for at most a tenth of the bound, but may always have runTokens
// tokens.
func TestBatchesAreBoundedInTime(t *testing.T) {
	for name, c := range map[string]struct {
		backlog time.Duration
		rate    float64
		want    int // tokens
	}{
		"a slow device":              {20 * time.Second, 1000, 2000},
		"a fast one":                 {20 * time.Second, 1e6, 16000},
		"no fewer than use a device": {5 * time.Second, 1000, 1000},
		"no bound":                   {0, 1000, 16000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newOneDevice(Work{PerToken: 1}, c.rate)
				q := NewQueue(NewSingleScheduler(1), r,
					Options{MaxBacklog: c.backlog, MaxCost: 16000, Adaptive: AdaptiveOptions{Disabled: true}})
				_, _ = submit(t, q, t.Context(), chunk(1, 10, 100)...).Wait() // the rate is known from here
				synctest.Wait()
				submit(t, q, t.Context(), text(2, 100))
				_, _ = submit(t, q, t.Context(), chunk(3, 400, 100)...).Wait()
				full := r.tokens[2 : len(r.tokens)-1]
				for _, n := range full {
					if n > c.want || n < c.want*9/10 {
						t.Fatalf("batches of %v tokens, want %d each", full, c.want)
					}
				}
				q.Close(ErrClosed)
			})
		})
	}
}

// At ten times the load that the device can handle, accepted requests are answered within 1.2 times
// the bound, and the throughput does not fall.
func TestOverloadKeepsTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 5 * time.Second
		work := Work{PerToken: 1e8, PerPair: 4e4}
		r := newOneDevice(work, 3e11) // BERT-base on two cores: 23 texts of 128 tokens a second
		q := NewQueue(NewSingleScheduler(2), r, Options{Work: work, MaxBacklog: bound})
		var mu sync.Mutex
		var took []time.Duration
		refused, done := 0, 0
		var all sync.WaitGroup
		ask := func(n int) {
			all.Go(func() {
				g := NewGroup(t.Context(), 1)
				start := time.Now()
				err := q.Submit(t.Context(), g, []Item{text(1, n)}, false)
				if err == nil {
					_, err = g.Wait()
				}
				mu.Lock()
				defer mu.Unlock()
				var full *FullError
				switch {
				case err == nil:
					took = append(took, time.Since(start))
					done += n
				case errors.As(err, &full) && full.RetryAfter >= time.Second && full.RetryAfter <= bound:
					refused++
				default:
					t.Errorf("%v", err)
				}
			})
		}
		for i := range 100 { // a warm-up, so that the rate is known
			ask(20 + i%210)
		}
		all.Wait()
		took, refused, done = nil, 0, 0
		start := time.Now()
		for i := range 60 * 230 {
			ask(20 + i%210)
			time.Sleep(time.Second / 230)
		}
		all.Wait()
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		rate := float64(done) / time.Since(start).Seconds()
		t.Logf("p99 %v, %d accepted, %d refused, %.0f tokens a second", p99, len(took), refused, rate)
		if p99 > bound*12/10 || rate < 0.97*2850 || refused < 10_000 {
			t.Errorf("p99 %v, %.0f tokens a second, %d refused", p99, rate, refused)
		}
		q.Close(ErrClosed)
	})
}
