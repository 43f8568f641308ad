package admit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// enter admits a request that must be admitted.
func enter(t *testing.T, g *Gate, r Request) *Work {
	t.Helper()
	w, err := g.Enter(r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A request that never fits takes no room from others, not even for a moment.
func TestRefusedRoomIsNeverTaken(t *testing.T) {
	g := New(Options{MaxHeldBytes: 100})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 200_000 {
			if g.Reserve(1<<40) == nil {
				t.Error("too many bytes are admitted")
			}
		}
	}()
	for refused := 0; ; {
		select {
		case <-ended:
			if refused > 0 || g.Held() != 0 {
				t.Errorf("%d requests that fit were refused; %d bytes are held", refused, g.Held())
			}
			return
		default:
		}
		if g.Reserve(1) != nil {
			refused++
			continue
		}
		g.Free(1)
	}
}

// refused reports whether err is the retryable 503 of a drain.
func refused(err error) bool {
	e := errs.As(err)
	return e != nil && e.Code == errs.Draining && e.Status == 503 && e.RetryAfter > 0
}

// A drain begun by any entrance refuses what comes later and waits for all that was admitted.
func TestDrainWaitsForAllEntrances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		if g.Open() != nil || g.Draining() || !g.ShutAt().IsZero() {
			t.Error("a new gate is not open")
		}
		first, second := enter(t, g, Request{}), enter(t, g, Request{})
		done := make(chan error, 2)
		for range 2 { // two entrances drain
			go func() { done <- g.Drain(t.Context()) }()
		}
		synctest.Wait()
		if _, err := g.Enter(Request{}); !refused(err) || !refused(g.Open()) || !g.Draining() ||
			g.ShutAt() != time.Now() {
			t.Errorf("a shut gate admits: %v, %v", err, g.Open())
		}
		first.End()
		synctest.Wait()
		if n := g.Running(); len(done) != 0 || n != 1 || second.Context().Err() != nil {
			t.Errorf("%d drains have ended while %d requests run; %v", len(done), n, second.Context().Err())
		}
		second.End()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// A gate without requests drains at once.
func TestDrainOfAnIdleGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		enter(t, g, Request{}).End()
		g.Shut()
		g.Shut()
		if err := g.Drain(t.Context()); err != nil { // a drain that waits would hang the test
			t.Error(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // nothing ran when the time was up
			if err := g.Drain(over); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// When the time for draining is up, what still runs ends with the retryable 503. Drain waits for it
// a little, and not for ever.
func TestDrainRunsOutOfTime(t *testing.T) {
	for name, ends := range map[string]bool{"it ends": true, "it does not": false} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{})
			w := enter(t, g, Request{})
			if ends {
				go func() {
					<-w.Context().Done()
					time.Sleep(time.Second)
					w.End()
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			err := g.Drain(ctx)
			want := time.Minute + LastAnswers
			if ends {
				want = time.Minute + time.Second
			}
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "1 requests still ran") || took != want {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			if cause := context.Cause(w.Context()); !refused(cause) {
				t.Errorf("%s: ended by %v", name, cause)
			}
			if !ends {
				w.End()
			}
		})
	}
}

// A request's context ends when its time is up, when it is cancelled, and with the request.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Timeout: 3 * time.Second})
		late, left, other := enter(t, g, Request{}), enter(t, g, Request{Began: time.Now().Add(-time.Hour)}),
			enter(t, g, Request{})
		if late.Began() != time.Now() || left.Began() != time.Now().Add(-time.Hour) {
			t.Errorf("began %v and %v", late.Began(), left.Began())
		}
		left.Cancel(ErrClientGone)
		if err := context.Cause(left.Context()); !errors.Is(err, ErrClientGone) ||
			late.Context().Err() != nil {
			t.Errorf("cancelled: %v, another %v", err, late.Context().Err())
		}
		left.End()
		other.End()
		if !errors.Is(other.Context().Err(), context.Canceled) {
			t.Error("a request that has ended goes on")
		}
		time.Sleep(3*time.Second - 1)
		if late.Context().Err() != nil {
			t.Error("the time was up too early")
		}
		<-late.Context().Done()
		if e := errs.As(context.Cause(late.Context())); e.Status != 504 ||
			!strings.Contains(e.Message, "3s") {
			t.Errorf("late: %v", e)
		}
		late.End()
		if n := g.Running(); n != 0 {
			t.Errorf("%d requests run", n)
		}
	})
}

// Requests and results share one bound. What is refused takes nothing, and what ends gives all
// back.
func TestHeldBytes(t *testing.T) {
	g := New(Options{MaxHeldBytes: 100})
	if err := g.Reserve(30); err != nil {
		t.Fatal(err)
	}
	if e := errs.As(g.Reserve(71)); e == nil || e.Code != errs.QueueFull || e.RetryAfter == 0 ||
		!strings.Contains(e.Message, "30 bytes pending, cannot add 71 more (limit: 100)") || g.Held() != 30 {
		t.Errorf("a request too many: %v; %d are held", e, g.Held())
	}
	w, other := enter(t, g, Request{Bytes: 30, Field: "texts"}), enter(t, g, Request{})
	if err := w.Hold(40, 4); err != nil || w.Held() != 40 || g.Held() != 70 {
		t.Errorf("%v; %d of %d", err, w.Held(), g.Held())
	}
	if e := errs.As(w.Hold(40, 8)); e == nil || e.Status != 400 || !strings.Contains(e.Message, "'texts'") ||
		!strings.Contains(e.Message, "at most 7 such") || w.Held() != 40 || g.Held() != 70 {
		t.Errorf("results that never fit: %v; %d of %d", e, w.Held(), g.Held())
	}
	if e := errs.As(other.Hold(40, 4)); e == nil || e.Status != 503 || e.RetryAfter == 0 ||
		!strings.Contains(e.Message, "3 of its items would fit now") || other.Held() != 0 {
		t.Errorf("results that do not fit now: %v; %d", e, other.Held())
	}
	if other.Take(31) || !other.Take(30) || g.Held() != 100 {
		t.Errorf("%d are held", g.Held())
	}
	other.Give(10)
	if other.Held() != 20 || g.Held() != 90 {
		t.Errorf("%d of %d", other.Held(), g.Held())
	}
	other.End()
	w.Keep() // by the writer of the answer
	w.End()
	if g.Held() != 70 || g.Running() != 0 {
		t.Errorf("%d are held, %d requests run", g.Held(), g.Running())
	}
	w.Release()
	w.Release()
	g.Free(30)
	if g.Held() != 0 {
		t.Errorf("%d are held", g.Held())
	}
}

// Work without a gate has its caller's context and no bounds.
func TestUnbounded(t *testing.T) {
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	w := Unbounded(ctx)
	if err := w.Hold(1<<60, 1); err != nil || !w.Take(1<<60) || w.Held() != 0 {
		t.Errorf("%v; %d are held", err, w.Held())
	}
	w.Give(5)
	w.Cancel(ErrClientGone)
	w.End()
	w.Release()
	if w.Context().Err() != nil || w.Held() != 0 || w.Began().IsZero() {
		t.Errorf("%v; %d are held", w.Context().Err(), w.Held())
	}
	cancel(left)
	if context.Cause(w.Context()) != left {
		t.Error("it goes on after its caller has left")
	}
}

// The number of items that fit is never overestimated.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		items       int
		bytes, room int64
		want        int
	}{{10, 1000, 100, 1}, {10, 1000, 99, 0}, {10, 1000, -5, 0}, {1 << 20, 1 << 32, 1 << 30, 1 << 18},
		{3, 10, 9, 2}} {
		if got := fits(c.items, c.bytes, c.room); got != c.want {
			t.Errorf("%d of %d bytes in %d: %d, want %d", c.items, c.bytes, c.room, got, c.want)
		}
	}
}

func TestOptionsAreValidated(t *testing.T) {
	if err := (&Options{MaxHeldBytes: -1, Timeout: -1}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "MaxHeldBytes") || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("%v", err)
	}
	if err := (&Options{}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
