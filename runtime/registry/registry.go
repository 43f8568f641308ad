package registry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/lockorder"
)

// Model is what a registry holds.
type Model interface {
	Bytes() int64
	// Idle reports whether nothing of the model runs, so that Close will not wait. It is called
	// with no reference left and the registry's lock held.
	Idle() bool
	// Close is called once, with no reference left; it may block.
	Close()
}

// State is the load state of a key.
type State string

// The states, as the model listing names them.
const (
	Available State = "available"
	Loading   State = "loading"
	Loaded    State = "loaded"
	Unloading State = "unloading"
	Failed    State = "failed"
)

// Failure describes a load that failed.
type Failure struct {
	Err       error
	Class     string // GATED, NOT_FOUND, OOM, …
	Permanent bool
	Attempts  int
	Until     time.Time // no new attempt before this time
}

// Error describes the failure for logs.
func (f *Failure) Error() string { return f.Class + ": " + f.Err.Error() }

// Unwrap returns the load's error.
func (f *Failure) Unwrap() error { return f.Err }

// Errors of Acquire, in addition to *Failure.
var (
	ErrLoading = errors.New("registry: model is loading")
	ErrClosed  = errors.New("registry: closed")
)

// DefaultTimeout is Options.Timeout where it is 0.
const DefaultTimeout = 30 * time.Minute

// ErrBusy means that a load needs the memory of models that are in use. Load.Pack returns it
// wrapped. It is not remembered as a failure: the callers of the load get ErrLoading, and the next
// Acquire starts a new load.
var ErrBusy = errors.New("registry: every model that could make room is in use")

// Load holds the functions that load a model. A panic of Find, Fetch or Pack fails this load alone,
// with a *guard.Panic, and is not tried again.
type Load[M Model] struct {
	// Find reports whether what Pack needs is already on this machine. If so, Fetch is not called
	// and the load does not wait for its turn to fetch. Find downloads nothing. nil: Fetch is
	// always called.
	Find func(ctx context.Context) (found bool, err error)
	// Fetch brings what Pack needs to this machine. Options.Fetches bounds how many run at once.
	// ctx ends at the load's timeout, or when the registry closes. nil: nothing to fetch.
	Fetch func(ctx context.Context) error
	// Pack makes the model. One Pack runs at a time. It may be called again after it failed for
	// lack of memory.
	Pack func(ctx context.Context) (M, error)
	// Drop, if set, is called at the end of a failed load, to release the result of Find or Fetch.
	Drop func()
}

// Options are the settings of a registry. Zero fields take the defaults in brackets.
type Options struct {
	// Classify returns the class of a load error, and permanent if trying again cannot help.
	Classify func(error) (class string, permanent bool)
	// Short reports whether memory is short now; nil means never.
	Short func() bool
	// NoMemory reports whether a load failed for lack of memory. Such a load is tried again after
	// each model that EvictOne unloads. nil means never.
	NoMemory func(error) bool
	// Pinned reports whether a key's model is never unloaded to free memory or because it is idle.
	// nil means none is pinned. It is called with the registry's lock held.
	Pinned func(key string) bool
	// Idle is how long a model may go unused before the monitor unloads it; 0: no limit.
	Idle time.Duration
	// Timeout bounds a load [DefaultTimeout]; packing that has begun is not stopped.
	Timeout time.Duration
	// Fetches bounds how many fetches run at once, including those of Registry.Fetch [4].
	Fetches int
	// Patience is how long EvictForLoad waits for a model to become unused before it drains one
	// [500 ms]. Drain is how long it then waits for the last user of that model [30 s].
	Patience, Drain time.Duration
	// Cooldown is how long a transient failure is remembered [30 s]; Cooldowns holds exceptions by
	// class. The time doubles with each attempt up to MaxCooldown [30 min]. After MaxAttempts [8] a
	// failure is permanent.
	Cooldown, MaxCooldown time.Duration
	Cooldowns             map[string]time.Duration
	MaxAttempts           int
	// Panicked, if set, is called when a load has panicked, with no locks held.
	Panicked func(key string, p *guard.Panic)
	// Tick, if set, is called by the monitor of Watch each time it has looked, with no locks held.
	Tick func()
	// Changed, if set, is called after a change of state, with no locks held.
	Changed func(key string, s State)
}

// Registry holds models by key. It is safe for concurrent use.
type Registry[M Model] struct {
	opt     Options
	fetches chan struct{} // tokens of running fetches
	packing chan struct{} // holds a token while a model is packed
	ctx     context.Context
	stop    context.CancelFunc // ends ctx: loads and the monitor

	mu      lockorder.Mutex[lockorder.Registry] // guards the fields below
	entries map[string]*entry[M]
	used    uint64        // counts acquisitions: the clock of the LRU order
	freed   chan struct{} // if not nil: closed when a model has lost its last reference
	closed  bool
	jobs    sync.WaitGroup
}

type entry[M Model] struct {
	key     string
	state   State
	model   M
	refs    int
	used    uint64
	at      time.Time // of the last use
	flight  *flight   // the load under way
	failure *Failure
	// not nil while the model is being unloaded: Acquire waits until it is closed, which is after
	// Model.Close
	gone chan struct{}
	// Unload was called: the model is unloaded even if a drain gives up; while loading: after the
	// callers that wait for it
	unload bool
}

// flight is one load. Its fields are guarded by Registry.mu until done is closed.
type flight struct {
	done    chan struct{} // closed when the load ends
	waiting int           // callers that wait; each gets a reference if the load succeeds
	err     error         // what those callers get if it fails
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
	if opt.Timeout == 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.Fetches == 0 {
		opt.Fetches = 4
	}
	if opt.Patience == 0 {
		opt.Patience = 500 * time.Millisecond
	}
	if opt.Drain == 0 {
		opt.Drain = 30 * time.Second
	}
	if opt.Classify == nil {
		opt.Classify = func(error) (string, bool) { return "UNKNOWN", false }
	}
	r := &Registry[M]{opt: opt, entries: make(map[string]*entry[M]), packing: make(chan struct{}, 1),
		fetches: make(chan struct{}, opt.Fetches)}
	r.ctx, r.stop = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return r
}

// Ref keeps a model loaded until Release, which must be called. Further calls of Release do
// nothing.
type Ref[M Model] struct {
	r    *Registry[M]
	e    *entry[M]
	look bool // it is not a use: idle models stay idle
	once sync.Once
}

// Model returns the pinned model, valid until Release.
func (r *Ref[M]) Model() M { return r.e.model }

// Release ends the reference.
func (r *Ref[M]) Release() { r.once.Do(func() { r.r.release(r.e, !r.look) }) }

// Acquire returns a reference to the model of key, and loads the model with load if necessary. It
// waits for the load, and for an unload that is under way before it, until ctx ends. Then it
// returns ErrLoading, and the load goes on. When a load succeeds, every caller that still waits
// gets its reference at once, so that no other load can unload the model before they run. A
// remembered failure is returned as *Failure.
func (r *Registry[M]) Acquire(ctx context.Context, key string, load Load[M]) (*Ref[M], error) {
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
		switch {
		case e.gone != nil: // wait until it is unloaded, then load it again
			gone := e.gone
			r.mu.Unlock()
			select {
			case <-gone:
				continue
			case <-ctx.Done():
				return nil, ErrLoading
			}
		case e.state == Loaded:
			r.useLocked(e)
			e.refs++
			r.mu.Unlock()
			return &Ref[M]{r: r, e: e}, nil
		case e.state == Failed && (e.failure.Permanent || time.Now().Before(e.failure.Until)):
			f := e.failure
			r.mu.Unlock()
			return nil, f
		case e.state != Loading:
			e.state = Loading
			e.flight = &flight{done: make(chan struct{})}
			r.jobs.Add(1)
			started = true
		}
		f := e.flight
		f.waiting++
		r.mu.Unlock()
		if started {
			r.changed(key, Loading)
			go r.doLoad(e, load)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		return r.finishLoad(e, f)
	}
}

// finishLoad returns the result of the load f for one caller, or ErrLoading if it has not ended.
func (r *Registry[M]) finishLoad(e *entry[M], f *flight) (*Ref[M], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-f.done:
	default:
		f.waiting--
		return nil, ErrLoading
	}
	if f.err != nil {
		return nil, f.err
	}
	return &Ref[M]{r: r, e: e}, nil
}

// useLocked records a use of e now.
func (r *Registry[M]) useLocked(e *entry[M]) {
	r.used++
	e.used, e.at = r.used, time.Now()
}

// release ends a reference. used: it was a use of the model.
func (r *Registry[M]) release(e *entry[M], used bool) {
	r.mu.Lock()
	e.refs--
	if used {
		e.at = time.Now()
	}
	if e.refs == 0 {
		if e.gone != nil {
			r.unloadLocked(e)
		}
		if r.freed != nil {
			close(r.freed)
			r.freed = nil
		}
	}
	r.mu.Unlock()
}

// Info describes one key for listings.
type Info struct {
	Key     string
	State   State
	Bytes   int64
	Failure *Failure
}

// Get returns the Info of key. A key that was never acquired is Available.
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

// Each calls f with every loaded model, in order of key. Each model stays loaded during its call,
// which is not a use of it.
func (r *Registry[M]) Each(f func(key string, m M)) {
	r.mu.Lock()
	var refs []*Ref[M]
	for _, e := range r.entries {
		if e.state == Loaded {
			e.refs++
			refs = append(refs, &Ref[M]{r: r, e: e, look: true})
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

// Close refuses new acquisitions, cancels loads and waits for them, and closes every model. All
// references must have been released.
func (r *Registry[M]) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
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
	lockorder.AssertNoneHeld("telling of a change")
	if r.opt.Changed != nil {
		r.opt.Changed(key, s)
	}
}
