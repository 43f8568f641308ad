package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// seeds returns the seeds of a test of random operations: a few, or many with SIE_LONG_TESTS=1.
// SIE_SEED chooses one. The test prints each seed before its run, because a deadlock, a panic or
// the time limit ends the process without any output of the test.
func seeds(t *testing.T, short, long int) (out []uint64) {
	t.Helper()
	if s := os.Getenv("SIE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	n := short
	if os.Getenv("SIE_LONG_TESTS") == "1" {
		n = long
	}
	for i := range n / 2 {
		out = append(out, uint64(i))
	}
	for len(out) < n {
		out = append(out, rand.Uint64())
	}
	return out
}

// plain is a simple model of a registry whose models have one byte each. It does one operation at a
// time.
type plain struct {
	budget int
	pinned map[string]bool
	models map[string]*plainModel // the loaded ones, by key
	failed map[string]*plainFailure
	clock  int
}

type plainModel struct {
	refs, used  int
	at          time.Time
	going, busy bool
}

type plainFailure struct {
	attempts int
	until    time.Time
	memory   bool
	past     bool // its cooldown has ended, but the next failure counts from it
}

// oldest returns the least recently used model that may be unloaded and is eligible.
func (p *plain) oldest(eligible func(*plainModel) bool) (key string) {
	for k, m := range p.models {
		if !p.pinned[k] && !m.going && eligible(m) && (key == "" || m.used < p.models[key].used) {
			key = k
		}
	}
	return key
}

func unused(m *plainModel) bool { return m.refs == 0 && !m.busy }

func (p *plain) gone(key string) {
	delete(p.models, key)
	for k, f := range p.failed {
		if f.memory && !f.past {
			delete(p.failed, k)
		}
	}
}

// room makes room for one more model. It returns "", or the result with which the load ends.
func (p *plain) room() string {
	for len(p.models) >= p.budget {
		unloading := false
		for _, m := range p.models {
			unloading = unloading || m.going
		}
		victim := p.oldest(unused)
		if victim == "" {
			victim = p.oldest(func(*plainModel) bool { return true })
			if victim == "" && !unloading {
				return "full"
			}
			if victim == "" || p.models[victim].refs > 0 {
				return "loading" // no reference is released meanwhile
			}
		}
		p.gone(victim)
	}
	return ""
}

// acquire returns what Acquire should: "", "loading" or "failed".
func (p *plain) acquire(key string, broken bool) string {
	if m := p.models[key]; m != nil {
		if m.going {
			return "loading"
		}
		m.refs++
		p.use(m)
		return ""
	}
	if f := p.failed[key]; f != nil && !f.past && time.Now().Before(f.until) {
		return "failed"
	}
	why := p.room()
	if broken && why == "" {
		why = "broken"
	}
	switch why {
	case "loading":
		if f := p.failed[key]; f != nil {
			f.past = true
		}
		return why
	case "":
		delete(p.failed, key)
		m := &plainModel{refs: 1}
		p.use(m)
		p.models[key] = m
		return ""
	}
	f := &plainFailure{attempts: 1, memory: why == "full"}
	if before := p.failed[key]; before != nil {
		f.attempts += before.attempts
	}
	f.until = time.Now().Add(min(30*time.Second<<(f.attempts-1), 30*time.Minute))
	p.failed[key] = f
	return "failed"
}

func (p *plain) use(m *plainModel) {
	p.clock++
	m.used, m.at = p.clock, time.Now()
}

func (p *plain) release(key string) {
	m := p.models[key]
	m.refs--
	m.at = time.Now()
	if m.refs == 0 && m.going {
		p.gone(key)
	}
}

func (p *plain) unload(key string) bool {
	m := p.models[key]
	if m == nil {
		if f := p.failed[key]; f != nil && !f.past {
			delete(p.failed, key)
		}
		return false
	}
	if m.going = true; m.refs == 0 {
		p.gone(key)
	}
	return true
}

// TestAgainstAPlainModel: the registry and a plain model of it agree after random sequential
// operations.
func TestAgainstAPlainModel(t *testing.T) {
	for _, seed := range seeds(t, 40, 4000) {
		if t.Failed() {
			break
		}
		fmt.Printf("SIE_SEED=%d\n", seed)
		synctest.Test(t, func(t *testing.T) { againstPlain(t, seed) })
	}
}

func againstPlain(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	const idle = time.Minute
	full, broken := errors.New("full"), errors.New("broken")
	p := &plain{
		budget: 1 + random.IntN(4),
		pinned: map[string]bool{},
		models: map[string]*plainModel{},
		failed: map[string]*plainFailure{},
	}
	keys := []string{"a", "b", "c", "d", "e", "f"}[:2+random.IntN(5)]
	for _, k := range keys {
		p.pinned[k] = random.IntN(8) == 0
	}
	r := New[*fake](Options{
		Idle:        idle,
		Pinned:      func(k string) bool { return p.pinned[k] },
		MaxAttempts: 1 << 30,
		Classify: func(err error) (string, bool) {
			if errors.Is(err, full) {
				return "OOM", false
			}
			return "UNKNOWN", false
		}})
	live := map[string]*fake{}
	refs := map[string][]*Ref[*fake]{}
	load := func(key string, bad bool) Load[*fake] {
		return Load[*fake]{Pack: func(ctx context.Context) (*fake, error) {
			for r.Bytes() >= int64(p.budget) {
				if did, err := r.EvictForLoad(ctx, ""); err != nil {
					return nil, err
				} else if !did {
					return nil, full
				}
			}
			if bad {
				return nil, broken
			}
			m := &fake{bytes: 1}
			live[key] = m
			return m, nil
		}}
	}
	var trace string
	for range 200 {
		key := keys[random.IntN(len(keys))]
		op := ""
		switch n := random.IntN(20); {
		case n < 8:
			bad := random.IntN(10) == 0
			want := p.acquire(key, bad)
			op = fmt.Sprintf("acquire %s (broken %v): %q", key, bad, want)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if m := p.models[key]; m != nil && m.going {
				cancel() // it waits for the unload of a model that nobody releases
			}
			ref, err := r.Acquire(ctx, key, load(key, bad))
			cancel()
			var f *Failure
			got := ""
			switch {
			case errors.Is(err, ErrLoading):
				got = "loading"
			case errors.As(err, &f):
				got = "failed"
			case err != nil:
				got = err.Error()
			default:
				refs[key] = append(refs[key], ref)
				if ref.Model() != live[key] || live[key].closed.Load() != 0 {
					got = "a model that is closed or of another"
				}
			}
			if got != want {
				t.Errorf("%s, want %q", got, want)
			}
		case n < 15:
			if held := refs[key]; len(held) > 0 {
				op = "release " + key
				refs[key] = held[1:]
				held[0].Release()
				held[0].Release()
				p.release(key)
			}
		case n < 16:
			op = "unload " + key
			if got, want := r.Unload(key), p.unload(key); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		case n < 17:
			op = "evict one"
			victim := p.oldest(unused)
			if victim != "" {
				p.gone(victim)
			}
			if got := r.EvictOne(); got != (victim != "") {
				t.Errorf("%v, want %q to go", got, victim)
			}
		case n < 18:
			wait := time.Duration(random.IntN(90)) * time.Second
			op = fmt.Sprintf("%s later", wait)
			time.Sleep(wait)
			r.evictIdle()
			for _, k := range keys {
				if m := p.models[k]; m != nil && !p.pinned[k] && !m.going && unused(m) &&
					time.Since(m.at) >= idle {
					p.gone(k)
				}
			}
		case n < 19:
			if m := p.models[key]; m != nil {
				op = "busy or not " + key
				m.busy = !m.busy
				live[key].busy = m.busy
			}
		}
		synctest.Wait()
		trace += op + "\n"
		for _, k := range keys {
			want := Available
			if f := p.failed[k]; f != nil && !f.past {
				want = Failed
			}
			if p.models[k] != nil {
				want = Loaded
			}
			if got := r.Get(k).State; got != want {
				t.Errorf("%s is %s, want %s", k, got, want)
			}
			if m := live[k]; m != nil && (m.closed.Load() == 0) != (p.models[k] != nil) ||
				m != nil && m.closed.Load() > 1 {
				t.Errorf("%s was closed %d times", k, m.closed.Load())
			}
		}
		if got := r.Bytes(); got != int64(len(p.models)) || len(p.models) > p.budget {
			t.Errorf("%d bytes, want %d of at most %d", got, len(p.models), p.budget)
		}
		if t.Failed() {
			t.Fatalf("after\n%s", trace)
		}
	}
	for _, held := range refs {
		for _, ref := range held {
			ref.Release()
		}
	}
	r.Close()
	for k, m := range live {
		if m.closed.Load() != 1 {
			t.Errorf("%s: closed %d times in the end", k, m.closed.Load())
		}
	}
}

// ledger checks the invariants of a registry under concurrent use. Safe for concurrent use.
type ledger struct {
	mu              sync.Mutex
	bytes, budget   int64
	fetching, most  int
	loading         map[string]int
	live            map[string]*watched
	pinned          map[string]bool
	asked           map[string]bool // Unload was called while the model was loaded or loading
	wishes          []*watched      // models for which Unload was called while they were loaded
	closing         bool
	t               *testing.T
	packs, unloaded int
}

// watched is a model that knows when it may be used.
type watched struct {
	l      *ledger
	key    string
	size   int64
	users  int
	closed bool
}

func (w *watched) Bytes() int64 { return w.size }
func (w *watched) Idle() bool   { return true }

func (w *watched) Close() {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	if w.closed || w.users > 0 {
		w.l.t.Errorf("%s: closed before %v, with %d users", w.key, w.closed, w.users)
	}
	if w.l.pinned[w.key] && !w.l.asked[w.key] && !w.l.closing {
		w.l.t.Errorf("%s is pinned and was unloaded", w.key)
	}
	w.closed = true
	delete(w.l.asked, w.key)
	w.l.bytes -= w.size
	w.l.unloaded++
	if w.l.live[w.key] == w {
		delete(w.l.live, w.key)
	}
}

func (w *watched) use(n int) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.users += n
	if w.closed {
		w.l.t.Errorf("%s is used after its end", w.key)
	}
}

func (l *ledger) enter(key string, count *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loading[key]++; l.loading[key] > 1 {
		l.t.Errorf("%s is loaded twice at once", key)
	}
	if count != nil {
		if *count++; *count > l.most {
			l.t.Errorf("%d fetches at once, at most %d", *count, l.most)
		}
	}
}

func (l *ledger) leave(key string, count *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loading[key]--
	if count != nil {
		*count--
	}
}

// TestManyAtOnce: under many concurrent callers no model is used after Close or loaded twice.
// Budget, pins and the limit of fetches hold, every unload happens, and no caller waits forever.
func TestManyAtOnce(t *testing.T) {
	for _, seed := range seeds(t, 30, 2000) {
		if t.Failed() {
			break
		}
		fmt.Printf("SIE_SEED=%d\n", seed)
		synctest.Test(t, func(t *testing.T) { manyAtOnce(t, seed) })
	}
}

func manyAtOnce(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	l := &ledger{
		t:       t,
		budget:  int64(3 + random.IntN(8)),
		most:    1 + random.IntN(3),
		loading: map[string]int{},
		live:    map[string]*watched{},
		asked:   map[string]bool{},
		pinned:  map[string]bool{"k0": random.IntN(2) == 0},
	}
	r := New[*watched](Options{
		Fetches:     l.most,
		Patience:    100 * time.Millisecond,
		Drain:       time.Duration(1+random.IntN(20)) * time.Second,
		Pinned:      func(key string) bool { return l.pinned[key] },
		Idle:        time.Minute,
		Cooldown:    time.Second,
		MaxCooldown: 4 * time.Second,
		MaxAttempts: 1 << 30,
	})
	r.Watch(0)
	full, broken := errors.New("full"), errors.New("broken")
	load := func(key string, size int64, fetch, pack time.Duration, here, bad bool) Load[*watched] {
		return Load[*watched]{
			Find: func(context.Context) (bool, error) { return here, nil },
			Fetch: func(ctx context.Context) error {
				l.enter(key, &l.fetching)
				defer l.leave(key, &l.fetching)
				return sleep(ctx, fetch)
			},
			Pack: func(ctx context.Context) (*watched, error) {
				l.enter(key, nil)
				defer l.leave(key, nil)
				for r.Bytes()+size > l.budget {
					if did, err := r.EvictForLoad(ctx, ""); err != nil {
						return nil, err
					} else if !did && r.Bytes()+size > l.budget {
						return nil, full
					}
				}
				l.mu.Lock()
				w := &watched{l: l, key: key, size: size}
				if l.bytes += size; l.bytes > l.budget {
					t.Errorf("%d bytes of %d", l.bytes, l.budget)
				}
				if other := l.live[key]; other != nil {
					t.Errorf("%s is there twice", key)
				}
				l.live[key] = w
				l.packs++
				l.mu.Unlock()
				if sleep(ctx, pack) != nil || bad {
					l.mu.Lock()
					l.asked[key] = true
					l.mu.Unlock()
					w.Close()
					return nil, broken
				}
				return w, nil
			},
		}
	}
	var callers sync.WaitGroup
	for range 2 + random.IntN(8) {
		own := rand.New(rand.NewPCG(random.Uint64(), 2))
		callers.Go(func() {
			for range 40 {
				key := fmt.Sprint("k", own.IntN(6))
				ms := func(most int) time.Duration { return time.Duration(own.IntN(most)) * time.Millisecond }
				switch own.IntN(12) {
				case 0:
					l.mu.Lock()
					w := l.live[key]
					l.asked[key] = true
					l.mu.Unlock()
					if r.Unload(key) && w != nil {
						l.mu.Lock()
						l.wishes = append(l.wishes, w)
						l.mu.Unlock()
					}
				case 1:
					time.Sleep(ms(90_000))
				case 2:
					r.EvictOne()
				case 3:
					r.Get(key)
					r.Each(func(_ string, w *watched) { w.use(1); time.Sleep(ms(50)); w.use(-1) })
				default:
					wait := time.Hour
					if own.IntN(3) == 0 {
						wait = ms(3000)
					}
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					begun := time.Now()
					ref, err := r.Acquire(ctx, key, load(key, 1+int64(own.IntN(2)), ms(5000), ms(500),
						own.IntN(3) == 0, own.IntN(12) == 0))
					cancel()
					if took := time.Since(begun); took > 20*time.Minute {
						t.Errorf("a caller waited %s for %s", took, key)
					}
					var f *Failure
					switch {
					case err == nil:
						ref.Model().use(1)
						time.Sleep(ms(4000))
						ref.Model().use(-1)
						ref.Release()
					case errors.Is(err, ErrLoading), errors.As(err, &f):
					default:
						t.Errorf("%s: %v", key, err)
					}
				}
			}
		})
	}
	callers.Wait()
	time.Sleep(time.Minute / 2) // let drains and unloads end
	l.mu.Lock()
	for _, w := range l.wishes {
		if !w.closed {
			t.Errorf("%s: an unload did not happen", w.key)
		}
	}
	l.closing = true
	l.mu.Unlock()
	hanging := make(chan error)
	go func() {
		_, err := r.Acquire(t.Context(), "new", load("new", 1, time.Hour, 0, false, false))
		hanging <- err
	}()
	synctest.Wait()
	r.Close()
	if err := <-hanging; !errors.Is(err, ErrClosed) {
		t.Errorf("during Close: %v", err)
	}
	if _, err := r.Acquire(t.Context(), "k1", Load[*watched]{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if len(l.live) > 0 || l.bytes != 0 || l.packs == 0 || l.unloaded != l.packs {
		t.Errorf("in the end %d live, %d bytes, %d packed, %d closed",
			len(l.live), l.bytes, l.packs, l.unloaded)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
