package model

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// adapterCache holds the LoRA adapters of one model. They are loaded on demand in the background.
// When there are too many, the least recently used one that no request uses is freed, but only for
// an adapter that has been read and fits the model. Sequences of one batch may have different
// adapters.
//
// Programs are recorded, and programs and adapters freed, with mu released.
type adapterCache struct {
	model  *Model
	limit  int
	ctx    context.Context
	cancel context.CancelFunc
	jobs   sync.WaitGroup
	bytes  atomic.Int64 // packed size of the adapters on all devices

	// guards the fields below, the adapters in all, and the sets of the model's variants
	mu     lockorder.Mutex[lockorder.Adapters]
	all    map[LoRAKey]*loadedAdapter
	tasks  map[string]*loadedAdapter     // those in the checkpoint, by task; they stay with the model
	failed map[LoRAKey]*registry.Failure // failed loads, at most maxFailedAdapters
	used   uint64
	dead   garbage
}

// LoRAKey identifies an adapter: a hub id with its revision, a directory, or a task of the model.
type LoRAKey struct {
	id, revision string
	task         string // of an adapter in the model's own checkpoint; "" for others
	operator     bool   // the catalog names it; else a request does, and id is a hub repository
}

// loadedAdapter is an adapter packed on every device. batch.Item.Adapter holds a *loadedAdapter.
type loadedAdapter struct {
	key      LoRAKey
	ready    bool            // false while it is being loaded
	replicas []*arch.Adapter // on each device, once ready
	pins     int             // requests that use it
	sets     int             // recorded programs that hold it
	used     uint64
	gone     bool // removed from all; it is freed when pins and sets are 0
}

func newAdapterCache(l *Model, limit int) *adapterCache {
	ctx, cancel := context.WithCancel(context.Background())
	return &adapterCache{
		tasks:  tasksOf(l),
		model:  l,
		limit:  limit,
		ctx:    ctx,
		cancel: cancel,
		all:    make(map[LoRAKey]*loadedAdapter),
		failed: make(map[LoRAKey]*registry.Failure),
	}
}

// tasksOf returns the adapters in the model's checkpoint.
func tasksOf(l *Model) map[string]*loadedAdapter {
	tasks := make(map[string]*loadedAdapter)
	if len(l.replicas) == 0 {
		return tasks
	}
	for _, task := range l.replicas[0].Tasks() {
		a := &loadedAdapter{key: LoRAKey{task: task}, ready: true}
		for _, c := range l.replicas {
			packed, _, err := c.TaskAdapter(task)
			if err != nil {
				return nil // replicas are of the same files
			}
			a.replicas = append(a.replicas, packed)
		}
		tasks[task] = a
	}
	return tasks
}

// TaskKey returns the key of a task's adapter, which is in the model's own checkpoint.
func TaskKey(task string) LoRAKey { return LoRAKey{task: task} }

// taskLocked returns the adapter of a task, which the option by names.
func (s *adapterCache) taskLocked(task, by string, m *catalog.Resolved) (*loadedAdapter, error) {
	if a := s.tasks[task]; a != nil {
		return a, nil
	}
	if len(s.tasks) == 0 {
		return nil, errs.Invalidf("options."+by,
			"Field 'options.%s': model '%s' has no use for it; remove it", by, m.ID)
	}
	return nil, errs.Invalidf("options."+by, "Field 'options.%s' must be one of %s; got %.80q",
		by, strings.Join(slices.Sorted(maps.Keys(s.tasks)), ", "), task)
}

// acquire pins the adapter of key. name is what the request calls it, of a task's adapter the
// option that names the task. If the adapter is not loaded, it
// starts the load unless one runs, and returns an error that says so. After a failed load it
// returns that failure while it is remembered.
func (s *adapterCache) acquire(key LoRAKey, name string, m *catalog.Resolved) (*loadedAdapter, error) {
	s.mu.Lock()
	defer s.unlock()
	a := s.all[key]
	if key.task != "" {
		var err error
		if a, err = s.taskLocked(key.task, name, m); err != nil {
			return nil, err
		}
	}
	if a == nil {
		if err := s.refusalLocked(key, name, m); err != nil {
			return nil, err
		}
		if s.mayLoadLocked() { // else the client tries again later
			s.startLocked(key)
		}
		return nil, errs.LoadingLoRA(name, m.ID)
	}
	if !a.ready {
		return nil, errs.LoadingLoRA(name, m.ID)
	}
	s.used++
	a.used = s.used
	a.pins++
	return a, nil
}

// adapter pins the adapter of key until drop is called; see adapterCache.acquire.
func (l *Model) adapter(
	key LoRAKey, name string, m *catalog.Resolved,
) (adapter batch.Adapter, drop func(), err error) {
	a, err := l.adapters.acquire(key, name, m)
	if err != nil {
		return nil, nil, err
	}
	return a, func() { l.adapters.release(a) }, nil
}

func (s *adapterCache) release(a *loadedAdapter) {
	s.mu.Lock()
	a.pins--
	s.freeLocked(a)
	s.unlock()
}

// preload starts to load the adapters that profiles name. A failure is logged, and returned to
// requests for that adapter.
func (s *adapterCache) preload(keys []LoRAKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.all[key] == nil && len(s.all) < s.limit {
			s.startLocked(key)
		}
	}
}

func (s *adapterCache) startLocked(key LoRAKey) {
	a := &loadedAdapter{key: key}
	s.all[key] = a
	s.jobs.Add(1)
	go s.load(a)
}

// mayLoadLocked reports whether a load may start: fewer than s.limit run, and an adapter could go
// for the new one if need be.
func (s *adapterCache) mayLoadLocked() bool {
	ready, victim := s.readyLocked()
	return len(s.all)-ready < s.limit && (len(s.all) < s.limit || victim != nil)
}

// readyLocked returns the number of loaded adapters, and the least recently used one that no
// request uses, nil if there is none.
func (s *adapterCache) readyLocked() (n int, victim *loadedAdapter) {
	for _, a := range s.all {
		if !a.ready {
			continue
		}
		n++
		if a.pins == 0 && (victim == nil || a.used < victim.used) {
			victim = a
		}
	}
	return n, victim
}

// makeRoomLocked reports whether there is room for one more loaded adapter. If there are already
// s.limit, it removes the least recently used one that no request uses.
func (s *adapterCache) makeRoomLocked() bool {
	ready, victim := s.readyLocked()
	if ready < s.limit {
		return true
	}
	if victim == nil {
		return false
	}
	delete(s.all, victim.key)
	victim.gone = true
	for _, set := range s.model.adaptedSets() {
		if slices.Contains(set.adapters, victim) {
			s.dropLocked(set)
		}
	}
	s.freeLocked(victim)
	return true
}

// close cancels loads, waits for them and frees all adapters. No batch may be running, and no
// request may hold an adapter.
func (s *adapterCache) close() {
	s.cancel()
	s.jobs.Wait()
	s.mu.Lock()
	for _, set := range s.model.adaptedSets() {
		s.dropLocked(set)
	}
	for _, a := range s.all {
		a.gone = true
		s.freeLocked(a)
	}
	s.all = nil
	s.unlock()
}

// garbage holds sets and adapters that are no longer held. unlock frees them after it has released
// the lock.
type garbage struct {
	sets     []*adaptedSet
	adapters []*arch.Adapter
}

// freeLocked moves an adapter to the garbage if it is gone and no request and no set holds it.
func (s *adapterCache) freeLocked(a *loadedAdapter) {
	if !a.gone || a.pins > 0 || a.sets > 0 {
		return
	}
	s.dead.adapters = append(s.dead.adapters, a.replicas...)
	a.replicas = nil
}

// unlock releases mu and frees the garbage. An adapter must outlive every program that was recorded
// with it, so a set releases its adapters only after its programs are closed.
func (s *adapterCache) unlock() {
	for {
		dead := s.dead
		s.dead = garbage{}
		s.mu.Unlock()
		for _, set := range dead.sets {
			set.close()
		}
		for _, a := range dead.adapters {
			n := a.Bytes()
			a.Close()
			s.bytes.Add(-n)
		}
		if len(dead.sets) == 0 {
			return
		}
		s.mu.Lock()
		for _, set := range dead.sets {
			s.releaseAllLocked(set.adapters)
		}
	}
}

// releaseAllLocked ends the hold of one set on adapters.
func (s *adapterCache) releaseAllLocked(adapters []*loadedAdapter) {
	for _, a := range adapters {
		a.sets--
		s.freeLocked(a)
	}
}

// LoRAOf returns the key of the adapter that the options o name; ok is false for none. A request
// may name an adapter of the hub or one of the model's load-time options. Only the operator may
// name a directory.
func LoRAOf(
	m *catalog.Resolved, o *catalog.RuntimeOptions, request map[string]any,
) (key LoRAKey, ok bool, err error) {
	if o.LoRAID == "" {
		return LoRAKey{}, false, nil
	}
	for _, known := range m.Loadtime.LoRAs {
		if known.Name == o.LoRAID {
			return LoRAKey{id: known.ID, revision: known.Revision, operator: true}, true, nil
		}
	}
	if o.LoRAID == m.Runtime.LoRAID {
		return LoRAKey{id: o.LoRAID, operator: true}, true, nil
	}
	_, named := request["lora_id"]
	if named && (catalog.IsPath(o.LoRAID) || !catalog.IsHubID(o.LoRAID)) {
		return LoRAKey{}, false, errs.Invalidf("options.lora_id",
			"Field 'options.lora_id' must name a hub repository such as \"org/name\", or an adapter of the model's lora_paths; got %.80q",
			o.LoRAID)
	}
	return LoRAKey{id: o.LoRAID, operator: !named}, true, nil
}

// adapterKeysOf returns the keys of the adapters that the entries name in their profiles.
func adapterKeysOf(users []*catalog.Resolved) (keys []LoRAKey) {
	add := func(k LoRAKey) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, m := range users {
		for _, known := range m.Loadtime.LoRAs {
			add(LoRAKey{id: known.ID, revision: known.Revision, operator: true})
		}
		if key, ok, err := LoRAOf(m, m.Runtime, nil); ok && err == nil {
			add(key)
		}
	}
	return keys
}
