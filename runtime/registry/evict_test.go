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

func acquire(t *testing.T, r *Registry[*fake], key string) *Ref[*fake] {
	t.Helper()
	ref, err := r.Acquire(t.Context(), key, ok(&fake{bytes: 1}))
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return ref
}

func wantStates(t *testing.T, r *Registry[*fake], want map[string]State) {
	t.Helper()
	for key, state := range want {
		if s := r.Get(key).State; s != state {
			t.Errorf("%s is %s, want %s", key, s, state)
		}
	}
}

func TestMonitorRelievesButKeepsTheLastThePinnedAndTheUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Bool
		r := New[*fake](Options{Short: short.Load, Pinned: func(key string) bool { return key == "pinned" }})
		r.Watch(0)
		acquire(t, r, "pinned").Release()
		held := acquire(t, r, "held")
		acquire(t, r, "old").Release()
		acquire(t, r, "new").Release()
		time.Sleep(5 * time.Second)
		wantStates(t, r, map[string]State{"pinned": Loaded, "held": Loaded, "old": Loaded, "new": Loaded})
		short.Store(true)
		time.Sleep(1100 * time.Millisecond)
		wantStates(t, r,
			map[string]State{"pinned": Loaded, "held": Loaded, "old": Available, "new": Available})
		held.Release()
		time.Sleep(2 * time.Second)
		wantStates(t, r, map[string]State{"pinned": Loaded, "held": Available})
		r.Close()

		r = New[*fake](Options{Short: short.Load})
		r.Watch(0)
		short.Store(false)
		acquire(t, r, "only").Release()
		short.Store(true)
		time.Sleep(3 * time.Second)
		wantStates(t, r, map[string]State{"only": Loaded})
		r.Close()
	})
}

// Looking at the models, as every scrape of the metrics does, keeps none of them loaded.
func TestLookingIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Idle: 10 * time.Second})
		r.Watch(0)
		acquire(t, r, "a").Release()
		seen := 0
		for range 15 {
			time.Sleep(time.Second)
			r.Each(func(string, *fake) { seen++ })
		}
		wantStates(t, r, map[string]State{"a": Available})
		if seen < 9 {
			t.Errorf("it was seen %d times", seen)
		}
		r.Close()
	})
}

func TestIdleModelsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](
			Options{Idle: 10 * time.Second, Pinned: func(key string) bool { return key == "pinned" }})
		r.Watch(0)
		acquire(t, r, "pinned").Release()
		long := acquire(t, r, "long") // one long request: the idle time counts from its end
		acquire(t, r, "a").Release()
		acquire(t, r, "b").Release()
		time.Sleep(6 * time.Second)
		acquire(t, r, "b").Release()
		time.Sleep(6 * time.Second)
		long.Release()
		wantStates(t, r, map[string]State{"pinned": Loaded, "long": Loaded, "a": Available, "b": Loaded})
		time.Sleep(6 * time.Second)
		wantStates(t, r, map[string]State{"long": Loaded, "b": Available})
		time.Sleep(6 * time.Second)
		wantStates(t, r, map[string]State{"pinned": Loaded, "long": Available})
		r.Close()
	})
}

func TestFetchesRunTogetherAndPackingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		var fetching, packing, most atomic.Int32
		start := time.Now()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				ref, err := r.Acquire(t.Context(), fmt.Sprint(i), Load[*fake]{
					Fetch: func(context.Context) error {
						for n := fetching.Add(1); n > most.Load(); {
							most.Store(n)
						}
						time.Sleep(10 * time.Second)
						fetching.Add(-1)
						return nil
					},
					Pack: func(context.Context) (*fake, error) {
						if packing.Add(1) != 1 {
							t.Error("two are packed at once")
						}
						time.Sleep(time.Second)
						packing.Add(-1)
						return &fake{}, nil
					},
				})
				if err != nil {
					t.Error(err)
					return
				}
				ref.Release()
			})
		}
		all.Wait()
		if most.Load() != 4 || time.Since(start) != 24*time.Second {
			t.Errorf("%d fetches at once, %s in all; want 4 and 24 s", most.Load(), time.Since(start))
		}
		r.Close()
	})
}

func TestLoadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		hanging := Load[*fake]{
			Fetch: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
			Drop:  func() { dropped++ },
		}
		r := New[*fake](Options{
			Timeout:   time.Minute,
			Cooldowns: map[string]time.Duration{"TIMEOUT": time.Hour},
			Classify: func(err error) (string, bool) {
				if errors.Is(err, context.DeadlineExceeded) {
					return "TIMEOUT", false
				}
				return "UNKNOWN", false
			}})
		var f *Failure
		if _, err := r.Acquire(t.Context(), "a", hanging); !errors.As(err, &f) || f.Class != "TIMEOUT" ||
			dropped != 1 {
			t.Errorf("%v, dropped %d times", err, dropped)
		}
		if wait := time.Until(f.Until); wait != 30*time.Minute {
			t.Errorf("the cooldown of its class is %s, want MaxCooldown", wait)
		}
		r.Unload("a")
		go r.Acquire(t.Context(), "a", hanging)
		synctest.Wait()
		start := time.Now()
		r.Close()
		if time.Since(start) > time.Second || dropped != 2 {
			t.Errorf("Close waited %s for a download; dropped %d times", time.Since(start), dropped)
		}
	})
}

// TestLoadWaitsForAModelInUse: the first released model is unloaded; if none is released, the least
// recently used is drained.
func TestLoadWaitsForAModelInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Patience: time.Second, Drain: 10 * time.Second})
		evict := func() (bool, error) { return r.EvictForLoad(t.Context(), "") }
		if did, err := evict(); did || err != nil {
			t.Errorf("an empty registry: %v, %v", did, err)
		}
		a, b := acquire(t, r, "a"), acquire(t, r, "b")
		first := a.Model()
		time.AfterFunc(500*time.Millisecond, b.Release)
		if did, err := evict(); !did || err != nil {
			t.Errorf("%v, %v", did, err)
		}
		wantStates(t, r, map[string]State{"a": Loaded, "b": Available})

		b = acquire(t, r, "b")
		time.AfterFunc(4*time.Second, a.Release)
		var again *Ref[*fake]
		go func() { // arrives while a is drained: it waits, and gets a new model
			time.Sleep(2 * time.Second)
			again = acquire(t, r, "a")
		}()
		start := time.Now()
		if did, err := evict(); !did || err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("%v, %v after %s", did, err, time.Since(start))
		}
		synctest.Wait()
		if again == nil || again.Model() == first {
			t.Error("a new user got the model that was drained")
		}
		start = time.Now()
		if _, err := evict(); !errors.Is(err, ErrBusy) || time.Since(start) != 11*time.Second {
			t.Errorf("%v after %s, want ErrBusy", err, time.Since(start))
		}
		wantStates(t, r, map[string]State{"a": Loaded, "b": Loaded})
		acquire(t, r, "a").Release() // the drain gave up: a takes users again
		acquire(t, r, "b").Release()
		again.Release()
		b.Release()
		r.Close()
	})
}

func TestBusyIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		busy := by(func() (*fake, error) { return nil, fmt.Errorf("no room: %w", ErrBusy) })
		if _, err := r.Acquire(t.Context(), "a", busy); err != ErrLoading {
			t.Errorf("%v", err)
		}
		acquire(t, r, "a").Release()
		r.Close()
	})
}

// TestAHundredModelsInRoomForTen: concurrent callers use many models of which ten fit. Each gets
// the model that it asked for, and at most ten are loaded at any time.
func TestAHundredModelsInRoomForTen(t *testing.T) {
	const models, room, callers, rounds = 100, 10, 16, 200
	r := New[*fake](Options{Patience: time.Millisecond})
	full := errors.New("full")
	load := func(key int) Load[*fake] {
		return Load[*fake]{Pack: func(ctx context.Context) (*fake, error) {
			for r.Bytes() >= room {
				if did, err := r.EvictForLoad(ctx, ""); err != nil {
					return nil, err
				} else if !did {
					return nil, full
				}
			}
			return &fake{bytes: 1, name: key}, nil
		}}
	}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range rounds {
				key := (caller*7 + i) % models
				ref, err := r.Acquire(t.Context(), fmt.Sprint(key), load(key))
				if err != nil {
					t.Errorf("model %d: %v", key, err)
					return
				}
				if m := ref.Model(); m.name != key || m.closed.Load() != 0 {
					t.Errorf("asked for %d, got %d, closed %d times", key, m.name, m.closed.Load())
				}
				if n := r.Bytes(); n > room {
					t.Errorf("%d models are loaded", n)
				}
				ref.Release()
			}
		})
	}
	all.Wait()
	r.Close()
}

// TestUnloadWhileLoading: callers that already wait get the model, which is then unloaded.
func TestUnloadWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		m := &fake{}
		var ref *Ref[*fake]
		go func() {
			ref, _ = r.Acquire(t.Context(), "a",
				by(func() (*fake, error) { time.Sleep(time.Second); return m, nil }))
		}()
		synctest.Wait()
		if !r.Unload("a") {
			t.Error("a model that loads was not there")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait() // the race detector sees this synchronisation, but not that of clocks
		if ref == nil || ref.Model() != m || m.closed.Load() != 0 {
			t.Fatal("its caller did not get it")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Acquire(ctx, "a", ok(m)); err != ErrLoading {
			t.Errorf("a new caller: %v", err)
		}
		ref.Release()
		synctest.Wait()
		if m.closed.Load() != 1 || r.Get("a").State != Available {
			t.Errorf("closed %d times, %s", m.closed.Load(), r.Get("a").State)
		}
		r.Close()
	})
}

// TestLoadWaitsForWhatGoes: a load waits for a model that is already being unloaded, and unloads no
// other.
func TestLoadWaitsForWhatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Patience: time.Second, Drain: 10 * time.Second})
		evict := func() (bool, error) { return r.EvictForLoad(t.Context(), "") }

		acquire(t, r, "kept").Release()
		closing := &fake{closing: 3 * time.Second}
		ref, err := r.Acquire(t.Context(), "closing", ok(closing))
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
		r.Unload("closing")
		start := time.Now()
		if did, err := evict(); !did || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("while a model is closed: %v, %v after %s", did, err, time.Since(start))
		}
		wantStates(t, r, map[string]State{"kept": Loaded, "closing": Available})
		r.Unload("kept")
		synctest.Wait()

		used := acquire(t, r, "used") // removed, but one request uses it a little longer
		r.Unload("used")
		time.AfterFunc(4*time.Second, used.Release)
		start = time.Now()
		if did, err := evict(); !did || err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("while a model that goes is used: %v, %v after %s", did, err, time.Since(start))
		}

		used, other := acquire(t, r, "used"), acquire(t, r, "other")
		r.Unload("used")
		start = time.Now()
		if did, err := evict(); did || !errors.Is(err, ErrBusy) || time.Since(start) != 11*time.Second {
			t.Errorf("with both in use: %v, %v after %s", did, err, time.Since(start))
		}
		acquire(t, r, "other").Release() // the drain gave up
		time.AfterFunc(4*time.Second, other.Release)
		start = time.Now()
		if did, err := evict(); !did || err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("the other is drained meanwhile: %v, %v after %s", did, err, time.Since(start))
		}
		used.Release()
		synctest.Wait()

		one, two := acquire(t, r, "one"), acquire(t, r, "two")
		if did, err := r.EvictForLoad(t.Context(), "one"); did || !errors.Is(err, ErrBusy) {
			t.Errorf("two is in use, one is spared: %v, %v", did, err)
		}
		one.Release()
		if r.EvictOther("one") || r.Get("one").State != Loaded {
			t.Error("a model that is spared went")
		}
		two.Release()
		if did, err := r.EvictForLoad(t.Context(), "one"); !did || err != nil ||
			r.Get("one").State != Loaded || r.Get("two").State != Available {
			t.Errorf("one is %s, two %s: %v, %v", r.Get("one").State, r.Get("two").State, did, err)
		}
		if did, err := r.EvictForLoad(t.Context(), "one"); did || err != nil {
			t.Errorf("nothing but what is spared: %v, %v", did, err)
		}
		r.Close()
	})
}

// TestAlone: no model is packed while it runs, and its wait ends with its context.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{})
		go r.PackAlone(t.Context(), func() error { time.Sleep(5 * time.Second); return nil })
		synctest.Wait()
		start := time.Now()
		acquire(t, r, "a").Release()
		if time.Since(start) != 5*time.Second {
			t.Errorf("a model was packed after %s", time.Since(start))
		}
		go r.Acquire(t.Context(), "b",
			by(func() (*fake, error) { time.Sleep(5 * time.Second); return &fake{}, nil }))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.PackAlone(ctx, func() error { return errors.New("it ran") }); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := r.PackAlone(t.Context(), func() error { return ErrBusy }); err != ErrBusy ||
			r.Get("b").State != Loaded {
			t.Errorf("%v while b is %s", err, r.Get("b").State)
		}
		r.Close()
	})
}

// TestUnloadOutlivesADrain: a load that gives up a drain does not undo an Unload by another caller.
func TestUnloadOutlivesADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Patience: time.Second, Drain: 10 * time.Second})
		defer r.Close()
		for _, before := range []bool{true, false} {
			ref := acquire(t, r, "a")
			m := ref.Model()
			if before {
				r.Unload("a")
			}
			ended := make(chan error)
			go func() { _, err := r.EvictForLoad(t.Context(), ""); ended <- err }()
			time.Sleep(5 * time.Second) // the load drains it
			if !r.Unload("a") {
				t.Fatal("nothing to unload")
			}
			if err := <-ended; !errors.Is(err, ErrBusy) {
				t.Errorf("%v, want ErrBusy", err)
			}
			ref.Release()
			synctest.Wait()
			if m.closed.Load() != 1 || r.Get("a").State != Available {
				t.Errorf("unloaded before the drain %v: closed %d times, %s",
					before, m.closed.Load(), r.Get("a").State)
			}
			next := acquire(t, r, "a") // the Unload is done: the next model stays
			next.Release()
			synctest.Wait()
			wantStates(t, r, map[string]State{"a": Loaded})
			r.Unload("a")
			synctest.Wait()
		}
	})
}

// TestUnloadOfALoadThatFails: the Unload ends with the failed load; the next model stays.
func TestUnloadOfALoadThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, end := range []error{errors.New("broken"), ErrBusy} {
			r := New[*fake](Options{})
			go r.Acquire(t.Context(), "a",
				by(func() (*fake, error) { time.Sleep(time.Second); return nil, end }))
			synctest.Wait()
			if !r.Unload("a") {
				t.Error("a model that loads was not there")
			}
			time.Sleep(time.Hour)
			acquire(t, r, "a").Release()
			synctest.Wait()
			wantStates(t, r, map[string]State{"a": Loaded})
			r.Close()
		}
	})
}
