package registry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Model is what a registry holds.
type Model interface {
	Bytes() int64
	// Idle reports that nothing of the model runs, so that Close will not wait. It is asked with no reference left and the
	// registry's lock held.
	Idle() bool
	// Close is called once, with no reference left; it may block.
	Close()
}

// State of a key.
type State string

// The states, in the words of the model listing.
const (
	Available State = "available"
	Loading   State = "loading"
	Loaded    State = "loaded"
	Unloading State = "unloading"
	Failed    State = "failed"
)

// Failure is a load that did not succeed.
type Failure struct {
	Err       error
	Class     string // GATED, NOT_FOUND, OOM, …
	Permanent bool
	Attempts  int
	Until     time.Time // no new attempt before
}

// Error describes the failure for logs.
func (f *Failure) Error() string { return f.Class + ": " + f.Err.Error() }

// Unwrap returns the load's error.
func (f *Failure) Unwrap() error { return f.Err }

// Errors of Acquire, besides *Failure and the context's.
var (
	ErrLoading   = errors.New("registry: model is loading")
	ErrUnloading = errors.New("registry: model is unloading")
	ErrClosed    = errors.New("registry: closed")
)

// Options of a registry.
type Options struct {
	// Classify names the class of a load error and says whether trying again can help.
	Classify func(error) (class string, permanent bool)
	// Short reports whether memory is short now; nil means never.
	Short func() bool
	// NoMemory reports whether a load failed for lack of memory: it is tried again after each model that EvictOne unloads.
	// nil means never.
	NoMemory func(error) bool
	// Cooldown is how long a transient failure is remembered [30 s]; it doubles with each attempt up to MaxCooldown
	// [30 min]. After MaxAttempts [8] a failure is permanent.
	Cooldown, MaxCooldown time.Duration
	MaxAttempts           int
	// Changed, if set, is told of every change of state, without locks held.
	Changed func(key string, s State)
}

// Registry is safe for concurrent use.
type Registry[M Model] struct {
	opt  Options
	load sync.Mutex // one load at a time

	mu      sync.Mutex // guards the fields below
	entries map[string]*entry[M]
	used    uint64 // counts acquisitions: the clock of the LRU order
	closed  bool
	jobs    sync.WaitGroup
}

type entry[M Model] struct {
	key     string
	state   State
	model   M
	refs    int
	used    uint64
	ready   chan struct{} // closed when a load ends
	failure *Failure
	evict   bool // close when the last reference goes
}

// New returns an empty registry.
func New[M Model](opt Options) *Registry[M] {
	if opt.Cooldown == 0 {
		opt.Cooldown = 30 * time.Second
	}
	if opt.MaxCooldown == 0 {
		opt.MaxCooldown = 30 * time.Minute
	}
	if opt.MaxAttempts == 0 {
		opt.MaxAttempts = 8
	}
	if opt.Classify == nil {
		opt.Classify = func(error) (string, bool) { return "UNKNOWN", false }
	}
	return &Registry[M]{opt: opt, entries: make(map[string]*entry[M])}
}

// Ref pins a model. Release it exactly once; further calls do nothing.
type Ref[M Model] struct {
	r    *Registry[M]
	e    *entry[M]
	once sync.Once
}

// Model returns the pinned model, valid until Release.
func (r *Ref[M]) Model() M { return r.e.model }

// Release lets go of the model.
func (r *Ref[M]) Release() { r.once.Do(func() { r.r.release(r.e) }) }

// Acquire returns a reference to the model of key, loading it with load if it is not there. It waits for a load until
// ctx ends, then returns ErrLoading while the load goes on. A remembered failure is returned as *Failure.
func (r *Registry[M]) Acquire(ctx context.Context, key string, load func() (M, error)) (*Ref[M], error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, ErrClosed
		}
		e := r.entries[key]
		if e == nil {
			e = &entry[M]{key: key, state: Available}
			r.entries[key] = e
		}
		started := false
		switch e.state {
		case Loaded:
			r.used++
			e.used = r.used
			e.refs++
			r.mu.Unlock()
			return &Ref[M]{r: r, e: e}, nil
		case Unloading:
			r.mu.Unlock()
			return nil, ErrUnloading
		case Failed:
			if e.failure.Permanent || time.Now().Before(e.failure.Until) {
				f := e.failure
				r.mu.Unlock()
				return nil, f
			}
			fallthrough
		case Available:
			e.state = Loading
			e.ready = make(chan struct{})
			r.jobs.Add(1)
			started = true
		case Loading:
		}
		ready := e.ready
		r.mu.Unlock()
		if started {
			r.changed(key, Loading)
			go r.doLoad(e, load)
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, ErrLoading
		}
	}
}

func (r *Registry[M]) doLoad(e *entry[M], load func() (M, error)) {
	defer r.jobs.Done()
	r.load.Lock()
	r.Relieve()
	m, err := load()
	for err != nil && r.opt.NoMemory != nil && r.opt.NoMemory(err) && r.EvictOne() {
		m, err = load()
	}
	r.load.Unlock()

	r.mu.Lock()
	state := Loaded
	if err != nil {
		state = Failed
		f := &Failure{Err: err, Attempts: 1}
		if e.failure != nil {
			f.Attempts = e.failure.Attempts + 1
		}
		f.Class, f.Permanent = r.opt.Classify(err)
		f.Permanent = f.Permanent || f.Attempts >= r.opt.MaxAttempts
		wait := r.opt.Cooldown
		for i := 1; i < f.Attempts && wait < r.opt.MaxCooldown; i++ {
			wait *= 2
		}
		f.Until = time.Now().Add(min(wait, r.opt.MaxCooldown))
		e.failure = f
	} else {
		e.model, e.failure = m, nil
		r.used++
		e.used = r.used
	}
	e.state = state
	close(e.ready)
	r.mu.Unlock()
	r.changed(e.key, state)
}

func (r *Registry[M]) release(e *entry[M]) {
	r.mu.Lock()
	e.refs--
	if e.refs == 0 && e.evict {
		r.unloadLocked(e)
	}
	r.mu.Unlock()
}

// Relieve unloads the least recently used models that nobody holds, while memory is short.
func (r *Registry[M]) Relieve() {
	for r.opt.Short != nil && r.opt.Short() {
		if !r.evict(func(M) bool { return true }) {
			return
		}
	}
}

// EvictOne unloads the least recently used model that nobody holds and that is idle, waits until it is gone, and reports
// whether there was one. A batch may call it: what waits for a batch is not idle, so nobody waits in a circle.
func (r *Registry[M]) EvictOne() bool { return r.evict(M.Idle) }

// evict unloads the least recently used of the models that nobody holds and that suit.
func (r *Registry[M]) evict(suits func(M) bool) bool {
	r.mu.Lock()
	if r.closed { // Close unloads what is left
		r.mu.Unlock()
		return false
	}
	var victim *entry[M]
	for _, e := range r.entries {
		if e.state == Loaded && e.refs == 0 && (victim == nil || e.used < victim.used) && suits(e.model) {
			victim = e
		}
	}
	if victim == nil {
		r.mu.Unlock()
		return false
	}
	done := r.unloadLocked(victim)
	r.mu.Unlock()
	<-done
	return true
}

// Unload unloads the model of key once its last reference is released. It reports whether there was one.
func (r *Registry[M]) Unload(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil || e.state != Loaded {
		return false
	}
	e.evict = true
	if e.refs == 0 {
		r.unloadLocked(e)
	}
	return true
}

// unloadLocked closes e's model in a goroutine; the returned channel closes when that is done.
func (r *Registry[M]) unloadLocked(e *entry[M]) <-chan struct{} {
	e.state, e.evict = Unloading, false
	done := make(chan struct{})
	m := e.model
	r.jobs.Add(1)
	go func() {
		defer r.jobs.Done()
		r.changed(e.key, Unloading)
		m.Close()
		r.mu.Lock()
		var none M
		e.model, e.state = none, Available
		for _, other := range r.entries { // memory came free: what failed for lack of it may be tried again
			if other.state == Failed && other.failure.Class == "OOM" {
				other.state, other.failure = Available, nil
			}
		}
		r.mu.Unlock()
		r.changed(e.key, Available)
		close(done)
	}()
	return done
}

// Info describes one key for listings.
type Info struct {
	Key     string
	State   State
	Bytes   int64
	Failure *Failure
}

// Get returns what is known of key; a key never asked for is Available.
func (r *Registry[M]) Get(key string) Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil {
		return Info{Key: key, State: Available}
	}
	return e.infoLocked()
}

func (e *entry[M]) infoLocked() Info {
	i := Info{Key: e.key, State: e.state, Failure: e.failure}
	if e.state == Loaded {
		i.Bytes = e.model.Bytes()
	}
	return i
}

// Each calls f with every loaded model, in order of key, pinned for the call.
func (r *Registry[M]) Each(f func(key string, m M)) {
	r.mu.Lock()
	var refs []*Ref[M]
	for _, e := range r.entries {
		if e.state == Loaded {
			e.refs++
			refs = append(refs, &Ref[M]{r: r, e: e})
		}
	}
	r.mu.Unlock()
	slices.SortFunc(refs, func(a, b *Ref[M]) int {
		if a.e.key < b.e.key {
			return -1
		}
		return 1
	})
	for _, ref := range refs {
		f(ref.e.key, ref.Model())
		ref.Release()
	}
}

// Close refuses new acquisitions, waits for loads, and closes every model. References must have been released.
func (r *Registry[M]) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.jobs.Wait()
	r.mu.Lock()
	for _, e := range r.entries {
		if e.state == Loaded {
			r.unloadLocked(e)
		}
	}
	r.mu.Unlock()
	r.jobs.Wait()
}

func (r *Registry[M]) changed(key string, s State) {
	if r.opt.Changed != nil {
		r.opt.Changed(key, s)
	}
}
