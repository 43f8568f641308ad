package pools

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
)

// Store is the bucket of pools: a lease.Store.
type Store interface {
	Make(ctx context.Context) error
	Look(ctx context.Context, last lease.View) (lease.View, error)
	Swap(ctx context.Context, v lease.View, t *lease.Table) (uint64, error)
	Follow(ctx context.Context, wake <-chan struct{}, each func(lease.View, error)) error
	Sweep(ctx context.Context, used map[string]bool) (pools []string, err error)
}

// Options configures a Keeper.
type Options struct {
	Lanes  []bus.Lane             // that the operator configured; none: those of live workers
	Limits Limits                 // of what clients may ask
	Fleet  func() *fleet.Snapshot // the workers; never nil
	// Models returns the id of a model that is asked for, in its own spelling, for pinned_models;
	// nil: every id is one.
	Models  func(id string) (string, bool)
	Metrics prometheus.Registerer // nil: none
	Log     *slog.Logger
}

// Keeper is a gateway's part in keeping the pools. Its methods are safe for concurrent use.
type Keeper struct {
	opt   Options
	store Store
	turn  chan struct{} // holds one while nobody changes the pools here
	view  atomic.Pointer[lease.View]
	wake  chan struct{}

	events *prometheus.CounterVec
}

// The times of a Keeper.
const (
	tidyEvery = 250 * time.Millisecond
	tidyTime  = 5 * time.Second
	firstTry  = 5 * time.Millisecond // after a conflict, doubled and with jitter up to
	lastTry   = 200 * time.Millisecond
)

// New returns a keeper that knows no pool. It registers its series. Start gives it a store.
func New(o Options) *Keeper {
	k := &Keeper{opt: o, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sie_gateway_pool_events_total",
			Help: "Pools that this gateway made, renewed, deleted or let expire."}, []string{"event"})}
	k.turn <- struct{}{}
	k.view.Store(&lease.View{Table: &lease.Table{}})
	for _, event := range []string{"created", "renewed", "deleted", "expired"} {
		k.events.WithLabelValues(event)
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(k.events)
		k.observe(o.Metrics)
	}
	return k
}

// Run keeps the pools of a store until ctx ends: it takes what others change, removes what has
// expired, and gives pools their workers. Put, Renew and Delete fail before Run begins.
func (k *Keeper) Run(ctx context.Context, s Store) error {
	<-k.turn
	k.store = s
	k.turn <- struct{}{}
	seen := make(chan lease.View, 1)
	followed := make(chan error, 1)
	go func() { // ends with ctx
		followed <- s.Follow(ctx, k.wake, func(v lease.View, err error) {
			if err != nil {
				return // the broker is away: what was seen last holds
			}
			select {
			case <-seen:
			default:
			}
			seen <- v
		})
	}()
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case err := <-followed:
			return err
		case v := <-seen:
			k.take(v)
			if k.foreign(v) {
				k.tidy(ctx)
			}
		case <-tick.C:
			if k.untidy() {
				k.tidy(ctx)
			}
			if time.Since(swept) > sweepEvery {
				swept = time.Now()
				k.sweep(ctx)
			}
		}
	}
}

// Connected has the keeper look at the pools at once.
func (k *Keeper) Connected() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// take makes a view this gateway's, unless it is older than that, or of another bucket, into which
// what is known here has to be put first.
func (k *Keeper) take(v lease.View) {
	for {
		old := k.view.Load()
		if k.foreign(v) || v.Epoch.Equal(old.Epoch) && v.Revision < old.Revision {
			return
		}
		if k.view.CompareAndSwap(old, &v) {
			return
		}
	}
}

// foreign reports whether a view is of another bucket than the pools that are known here.
func (k *Keeper) foreign(v lease.View) bool {
	old := k.view.Load()
	return !v.Epoch.Equal(old.Epoch) && !old.Epoch.IsZero()
}

// untidy reports whether something is to be done: a pool has expired, or workers are to be given.
func (k *Keeper) untidy() bool {
	v := k.view.Load()
	if len(v.Table.Pools) == 0 {
		return false
	}
	t := v.Table.Clone()
	return len(expire(t, v.Now())) > 0 || k.assign(t)
}

// assign gives a table's pools their workers, where those are known.
func (k *Keeper) assign(t *lease.Table) bool {
	f := k.opt.Fleet()
	if !f.Settled || !f.Connected {
		return false
	}
	var live []candidate
	for _, w := range f.Workers {
		if w.Live {
			live = append(live, candidate{w.ID, w.Home, w.Ready()})
		}
	}
	return assign(t, live, k.opt.Limits.Workers)
}

func (k *Keeper) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	_, err := k.update(ctx, func(*lease.Table) (bool, *errs.Error) { return false, nil })
	if err != nil && ctx.Err() == nil {
		k.opt.Log.Warn("the pools cannot be kept", "error", err)
	}
}

// update changes the pools in the bucket, as often as it takes until nobody else does so meanwhile.
// What has expired is gone before change sees the table, and workers are given after it. It returns
// a view of the change or of later, which is this gateway's.
func (k *Keeper) update(
	ctx context.Context, change func(t *lease.Table) (bool, *errs.Error),
) (v lease.View, err error) {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return v, ctx.Err()
	}
	if k.store == nil {
		return v, errNoStore
	}
	for wait := firstTry; ; wait = min(2*wait, lastTry) {
		if v, err = k.store.Look(ctx, *k.view.Load()); err != nil {
			return v, err
		}
		t := v.Table.Clone()
		changed := k.foreign(v) && merge(t, k.view.Load().Table, k.view.Load().Now())
		gone := expire(t, v.Now())
		changed = changed || len(gone) > 0
		asked, refused := change(t)
		if refused != nil {
			return v, refused
		}
		changed = k.assign(t) || changed || asked
		if !changed {
			k.adopt(v)
			return v, nil
		}
		if v.Epoch.IsZero() {
			if err := k.store.Make(ctx); err != nil {
				return v, err
			}
			if v, err = k.store.Look(ctx, lease.View{}); err != nil {
				return v, err
			}
			if v.Revision > 0 {
				continue // another gateway has begun
			}
		}
		revision, err := k.store.Swap(ctx, v, t)
		if err == nil {
			k.tellExpired(gone)
			return k.wrote(ctx, v, revision, t), nil
		}
		if !errors.Is(err, lease.ErrConflict) {
			return v, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// adopt makes a view this gateway's, also of another bucket. The caller has the turn, and has just
// looked.
func (k *Keeper) adopt(v lease.View) {
	if k.foreign(v) {
		k.view.Store(&v)
		return
	}
	k.take(v)
}

// wrote returns a view of a table that was written, or of later, and makes it this gateway's.
func (k *Keeper) wrote(ctx context.Context, over lease.View, revision uint64, t *lease.Table) lease.View {
	v, err := k.store.Look(ctx, lease.View{})
	if err != nil || !v.Epoch.Equal(over.Epoch) || v.Revision < revision {
		t = t.Clone() // its times are not known: they are not before the view's
		for _, p := range t.Pools {
			if p.Created.IsZero() {
				p.Created = over.Now()
			}
			if p.Renewed.IsZero() {
				p.Renewed = over.Now()
			}
		}
		v = lease.At(over.Epoch, revision, t, over.Now())
	}
	k.adopt(v)
	return v
}

func (k *Keeper) tellExpired(names []string) {
	for _, name := range names {
		k.events.WithLabelValues("expired").Inc()
		k.opt.Log.Info("a pool has expired", "event", "pool.expire", "pool", name)
	}
}

var errNoStore = errors.New("the broker was not reached yet")
