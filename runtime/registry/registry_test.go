package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type fake struct {
	name   int
	bytes  int64
	busy   bool
	closed atomic.Int32

	closing time.Duration // how long Close takes
}

func (f *fake) Bytes() int64 { return f.bytes }
func (f *fake) Idle() bool   { return !f.busy }
func (f *fake) Close()       { time.Sleep(f.closing); f.closed.Add(1) }

func ok(m *fake) Load[*fake] { return by(func() (*fake, error) { return m, nil }) }

func by(pack func() (*fake, error)) Load[*fake] {
	return Load[*fake]{Pack: func(context.Context) (*fake, error) { return pack() }}
}

func TestConcurrentCallersShareOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		m := &fake{bytes: 5}
		var loads atomic.Int32
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				ref, err := r.Acquire(t.Context(), "a", by(func() (*fake, error) {
					loads.Add(1)
					time.Sleep(time.Second)
					return m, nil
				}))
				if err != nil {
					t.Error(err)
					return
				}
				ref.Release()
				ref.Release()
			})
		}
		wg.Wait()
		if loads.Load() != 1 {
			t.Errorf("%d loads", loads.Load())
		}
		if i := r.Get("a"); i.State != Loaded || i.Bytes != 5 {
			t.Errorf("%+v", i)
		}
		r.Close()
		if m.closed.Load() != 1 {
			t.Errorf("closed %d times", m.closed.Load())
		}
	})
}

func TestCallerLeavesLoadGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		slow := func() (*fake, error) { time.Sleep(5 * time.Second); return &fake{}, nil }
		if _, err := r.Acquire(ctx, "a", by(slow)); !errors.Is(err, ErrLoading) {
			t.Fatalf("err %v", err)
		}
		if s := r.Get("a").State; s != Loading {
			t.Errorf("state %s", s)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		ref, err := r.Acquire(t.Context(), "a",
			by(func() (*fake, error) { t.Error("loaded twice"); return nil, nil }))
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
		r.Close()
	})
}

func TestFailuresAreRememberedWithCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("no network")
		r := New[*fake](Options{Cooldown: 10 * time.Second, MaxAttempts: 3,
			Classify: func(error) (string, bool) { return "NETWORK", false }})
		loads := 0
		bad := func() (*fake, error) { loads++; return nil, boom }
		wait := []time.Duration{0, 10 * time.Second, 20 * time.Second}
		for i, w := range wait {
			if i > 0 {
				time.Sleep(w - time.Millisecond)
				if _, err := r.Acquire(t.Context(), "a", by(bad)); !errors.Is(err, boom) || loads != i {
					t.Fatalf("attempt %d within the cooldown: %v after %d loads", i, err, loads)
				}
				time.Sleep(time.Millisecond)
			}
			var f *Failure
			if _, err := r.Acquire(t.Context(), "a", by(bad)); !errors.As(err, &f) || f.Attempts != i+1 ||
				loads != i+1 {
				t.Fatalf("attempt %d: %v after %d loads", i, err, loads)
			}
			if f.Permanent != (i == 2) {
				t.Errorf("attempt %d: permanent %v", i, f.Permanent)
			}
		}
		time.Sleep(time.Hour)
		if _, err := r.Acquire(t.Context(), "a", by(bad)); err == nil || loads != 3 {
			t.Errorf("a permanent failure was tried again: %d loads", loads)
		}
		r.Close()
	})
}

func TestLeastRecentlyUsedGoesFirstAndPinnedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live atomic.Int64
		load := func() (*fake, error) { live.Add(1); return &fake{}, nil }
		r := New[*fake](Options{
			Short: func() bool { return live.Load() >= 3 },
			Changed: func(_ string, s State) {
				if s == Available {
					live.Add(-1)
				}
			},
		})
		get := func(k string) *Ref[*fake] {
			t.Helper()
			ref, err := r.Acquire(t.Context(), k, by(load))
			if err != nil {
				t.Fatal(err)
			}
			return ref
		}
		a := get("a") // pinned
		get("b").Release()
		get("c").Release()
		get("b").Release() // c is now the least recently used without a user
		get("d").Release()
		for k, want := range map[string]State{"a": Loaded, "b": Loaded, "c": Available, "d": Loaded} {
			if s := r.Get(k).State; s != want {
				t.Errorf("%s is %s, want %s", k, s, want)
			}
		}
		if !r.Unload("a") || r.Get("a").State != Loaded {
			t.Error("a pinned model must stay until its release")
		}
		a.Release()
		synctest.Wait()
		if s := r.Get("a").State; s != Available {
			t.Errorf("a is %s after its release", s)
		}
		r.Close()
	})
}

func TestOutOfMemoryIsForgottenWhenMemoryComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Classify: func(error) (string, bool) { return "OOM", false }})
		ref, _ := r.Acquire(t.Context(), "a", ok(&fake{}))
		ref.Release()
		if _, err := r.Acquire(t.Context(), "b",
			by(func() (*fake, error) { return nil, errors.New("oom") })); err == nil {
			t.Fatal("no error")
		}
		r.Unload("a")
		synctest.Wait()
		ref, err := r.Acquire(t.Context(), "b", ok(&fake{}))
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
		r.Close()
		if _, err := r.Acquire(t.Context(), "b", ok(&fake{})); !errors.Is(err, ErrClosed) {
			t.Errorf("err %v", err)
		}
	})
}

// A load without memory is tried again after each unload. Idle models without a reference are
// unloaded, the least recently used first.
func TestLoadMakesRoom(t *testing.T) {
	full := errors.New("no room")
	for name, c := range map[string]struct {
		need  int32 // unloads before the load succeeds
		loads int32
		want  map[string]State
	}{
		"one has to go": {1, 2,
			map[string]State{"held": Loaded, "busy": Loaded, "old": Available, "new": Loaded, "x": Loaded}},
		"two have to go": {2, 3, map[string]State{
			"held": Loaded, "busy": Loaded, "old": Available, "new": Available, "x": Loaded,
		}},
		"it never fits": {9, 3, map[string]State{
			"held": Loaded, "busy": Loaded, "old": Available, "new": Available, "x": Failed,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var unloaded, loads atomic.Int32
				r := New[*fake](Options{
					NoMemory: func(err error) bool { return errors.Is(err, full) },
					Classify: func(error) (string, bool) { return "OOM", false },
					Changed: func(_ string, s State) {
						if s == Available {
							unloaded.Add(1)
						}
					},
				})
				held, _ := r.Acquire(t.Context(), "held", ok(&fake{}))
				for _, key := range []string{"busy", "old", "new"} {
					ref, err := r.Acquire(t.Context(), key, ok(&fake{busy: key == "busy"}))
					if err != nil {
						t.Fatal(err)
					}
					ref.Release()
				}
				ref, err := r.Acquire(t.Context(), "x", by(func() (*fake, error) {
					loads.Add(1)
					if unloaded.Load() < c.need {
						return nil, full
					}
					return &fake{}, nil
				}))
				for key, want := range c.want {
					if s := r.Get(key).State; s != want {
						t.Errorf("%s is %s, want %s", key, s, want)
					}
				}
				if loads.Load() != c.loads || (err == nil) != (c.want["x"] == Loaded) {
					t.Errorf("%d loads, %v", loads.Load(), err)
				}
				if err == nil {
					ref.Release()
				}
				held.Release()
				r.Close()
				if r.EvictOne() {
					t.Error("a closed registry evicts")
				}
			})
		})
	}
}

// No model is unloaded for any other failure.
func TestOtherFailuresEvictNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{NoMemory: func(error) bool { return false }})
		ref, _ := r.Acquire(t.Context(), "a", ok(&fake{}))
		ref.Release()
		if _, err := r.Acquire(t.Context(), "b",
			by(func() (*fake, error) { return nil, errors.New("corrupt") })); err == nil {
			t.Error("no error")
		}
		if r.Get("a").State != Loaded {
			t.Error("a was unloaded")
		}
		r.Close()
	})
}

// After a load its model counts as the last used, and a caller that left holds no reference. A
// caller that waits when the registry closes gets ErrClosed. A failure other than for memory is not
// forgotten when a model is unloaded.
func TestMemoryAfterAFailedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](
			Options{Classify: func(error) (string, bool) { return "NETWORK", false }, Idle: 10 * time.Second})
		acquire(t, r, "old").Release()
		acquire(t, r, "old").Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slow := by(func() (*fake, error) { time.Sleep(2 * time.Second); return &fake{}, nil })
		if _, err := r.Acquire(ctx, "new", slow); err != ErrLoading {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		failing := by(func() (*fake, error) { return nil, errors.New("no network") })
		if _, err := r.Acquire(t.Context(), "away", failing); err == nil {
			t.Error("no error")
		}
		if !r.EvictOne() || r.Get("old").State != Available || r.Get("new").State != Loaded {
			t.Errorf("old is %s, new %s: old was used before new was there",
				r.Get("old").State, r.Get("new").State)
		}
		if r.Get("away").State != Failed {
			t.Errorf("a failure of class NETWORK was forgotten when a model went: %s", r.Get("away").State)
		}
		if !r.EvictOne() || r.Get("new").State != Available {
			t.Error("a caller that left holds the model")
		}

		busy := &fake{busy: true}
		ref, _ := r.Acquire(t.Context(), "busy", ok(busy))
		ref.Release()
		time.Sleep(time.Minute)
		r.evictIdle()
		if r.Get("busy").State != Loaded {
			t.Error("a model with batches on their way counts as idle")
		}

		told := make(chan error, 1)
		go func() {
			_, err := r.Acquire(t.Context(), "late",
				Load[*fake]{Fetch: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
			told <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-told; err != ErrClosed {
			t.Errorf("a caller that waits when the registry closes: %v", err)
		}
	})
}

// TestSlowFetchesDoNotHoldUpWhatIsHere: the load of a model that is on this machine waits for no
// fetch.
func TestSlowFetchesDoNotHoldUpWhatIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Fetches: 2})
		defer r.Close()
		var asked atomic.Int32
		slow := Load[*fake]{Find: func(context.Context) (bool, error) { asked.Add(1); return false, nil },
			Fetch: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		for i := range 5 {
			go r.Acquire(t.Context(), fmt.Sprint(i), slow)
		}
		synctest.Wait()
		if asked.Load() != 5 {
			t.Errorf("%d of 5 loads looked at the disk", asked.Load())
		}
		ref, err := r.Acquire(t.Context(), "here",
			Load[*fake]{Find: func(context.Context) (bool, error) { return true, nil },
				Fetch: func(context.Context) error { t.Error("what is here was fetched"); return nil },
				Pack:  func(context.Context) (*fake, error) { return &fake{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
		broken := errors.New("broken")
		if _, err := r.Acquire(t.Context(), "broken", Load[*fake]{
			Find: func(context.Context) (bool, error) { return false, broken }, Fetch: slow.Fetch,
		}); !errors.Is(err, broken) {
			t.Errorf("%v, want the error of Find", err)
		}
	})
}

// TestFetchSharesTheLimit: Registry.Fetch shares the limit with fetches of loads, and ends at the
// timeout of a load.
func TestFetchSharesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Fetches: 1, Timeout: time.Minute})
		defer r.Close()
		start := time.Now()
		go r.Acquire(t.Context(), "a", Load[*fake]{
			Fetch: func(context.Context) error { time.Sleep(10 * time.Second); return errors.New("no") },
		})
		synctest.Wait()
		err := r.Fetch(t.Context(), func(ctx context.Context) error {
			if time.Since(start) != 10*time.Second {
				t.Errorf("it began after %s, beside a fetch", time.Since(start))
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %s, want the deadline of a load, the wait included", err, time.Since(start))
		}
		if err := r.Fetch(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("the token was kept: %v", err)
		}
	})
}
