package pools

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
)

var testLanes = []bus.Lane{
	{Pool: "default", Profile: "l4", Bundle: "default"}, {Pool: "default", Profile: "l4", Bundle: "fast"},
	{Pool: "default", Profile: "h100", Bundle: "default"},
	{Pool: "team", Profile: "a100-spot", Bundle: "default"},
}

var testLimits = Limits{Pools: 5, TTL: 3600, Workers: 4}

// memory is a plain bucket: one document under one lock.
type memory struct {
	mu       sync.Mutex
	made     time.Time // zero: there is no bucket
	revision uint64
	table    *lease.Table
	fail     func() error // of the next call; nil: none fails
	watch    []chan struct{}
}

func (m *memory) broken() error {
	if m.fail == nil {
		return nil
	}
	return m.fail()
}

func (m *memory) Make(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.broken(); err != nil {
		return err
	}
	if m.made.IsZero() {
		m.made, m.revision, m.table = time.Now(), 0, &lease.Table{}
	}
	return nil
}

func (m *memory) Look(_ context.Context, last lease.View) (lease.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.broken(); err != nil {
		return lease.View{}, err
	}
	if m.made.IsZero() {
		return lease.At(time.Time{}, 0, &lease.Table{}, time.Now()), nil
	}
	return lease.At(m.made, m.revision, m.table, time.Now()), nil
}

func (m *memory) Swap(_ context.Context, v lease.View, t *lease.Table) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.broken(); err != nil && !errors.Is(err, lease.ErrUnknown) {
		return 0, err
	}
	if !v.Epoch.Equal(m.made) || v.Revision != m.revision || m.made.IsZero() {
		return 0, lease.ErrConflict
	}
	t = t.Clone()
	for _, p := range t.Pools {
		if p.Created.IsZero() {
			p.Created = time.Now()
		}
		if p.Renewed.IsZero() {
			p.Renewed = time.Now()
		}
	}
	m.revision++
	m.table = t
	for _, w := range m.watch {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return m.revision, nil
}

// lose forgets the bucket.
func (m *memory) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made, m.table = time.Time{}, nil
}

func (m *memory) Follow(ctx context.Context, wake <-chan struct{}, each func(lease.View, error)) error {
	told := make(chan struct{}, 1)
	m.mu.Lock()
	m.watch = append(m.watch, told)
	m.mu.Unlock()
	for {
		each(m.Look(ctx, lease.View{}))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		case <-told:
		case <-wake:
		}
	}
}

func (m *memory) Sweep(context.Context, map[string]bool) ([]string, error) { return nil, nil }

// workers is a fleet of plain workers. A worker's lane follows its pool, as a sidecar's does.
type workers struct {
	mu  sync.Mutex
	all map[string]*fleet.Worker
}

func (w *workers) set(id string, home bus.Lane, ready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &fleet.Worker{ID: id, Lane: home, Home: home, Live: true}
	x.Heartbeat.Ready = ready
	w.all[id] = x
}

func (w *workers) drop(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, id)
}

func (w *workers) snapshot() *fleet.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &fleet.Snapshot{Connected: true, Settled: true}
	for _, x := range w.all {
		s.Workers = append(s.Workers, x)
	}
	slices.SortFunc(s.Workers, func(a, b *fleet.Worker) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func newKeeper(w *workers, change func(*Options)) *Keeper {
	o := Options{Lanes: testLanes, Limits: testLimits, Fleet: w.snapshot, Log: slog.New(slog.DiscardHandler),
		Models: func(id string) (string, bool) { return "org/a", strings.EqualFold(id, "org/a") }}
	if change != nil {
		change(&o)
	}
	return New(o)
}

func codeOf(e *errs.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Code)
}
