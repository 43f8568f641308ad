package model

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// loras are the LoRA adapters of one model: loaded on demand in the background, kept while they are
// used, the least recently used one gone when there are too many. Sequences of one batch may have
// different ones.
//
// Programs are recorded, and programs and adapters freed, with mu released.
type loras struct {
	model  *Model
	most   int
	ctx    context.Context
	cancel context.CancelFunc
	jobs   sync.WaitGroup
	bytes  atomic.Int64 // of the adapters on all devices

	mu     lockorder.Mutex[lockorder.LoRAs] // guards the fields below, the entries, and the sets of the model's variants
	all    map[LoRAKey]*lora
	failed map[LoRAKey]*registry.Failure // loads that did not succeed, at most maxFailedLoras
	used   uint64
	dead   garbage
}

// LoRAKey names an adapter: a hub id or a directory, and the revision of the former.
type LoRAKey struct {
	id, revision string
	operator     bool // it stands in the catalog; else a request named it, and id is that of a repository
}

// lora is an adapter on every device. It is what batch.Item.Adapter holds.
type lora struct {
	key    LoRAKey
	ready  bool            // else it is being loaded
	copies []*arch.Adapter // on each device, once ready
	pins   int             // requests that use it
	sets   int             // recorded programs that hold it
	used   uint64
	gone   bool // freed when neither holds it
}

func newLoras(l *Model, most int) *loras {
	ctx, cancel := context.WithCancel(context.Background())
	return &loras{model: l, most: most, ctx: ctx, cancel: cancel, all: make(map[LoRAKey]*lora), failed: make(map[LoRAKey]*registry.Failure)}
}

// acquire pins the adapter that a request calls name, or says that it is being loaded, which the
// first to ask for it starts, or why it cannot be had for now.
func (s *loras) acquire(key LoRAKey, name string, m *catalog.Resolved) (*lora, error) {
	s.mu.Lock()
	defer s.unlock()
	a := s.all[key]
	if a == nil {
		if err := s.refusalLocked(key, name, m); err != nil {
			return nil, err
		}
		if s.makeRoomLocked() { // else every adapter is in use at this moment; later one is not
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

// adapter pins the adapter that a request calls name, until drop is called.
func (l *Model) adapter(key LoRAKey, name string, m *catalog.Resolved) (adapter batch.Adapter, drop func(), err error) {
	a, err := l.loras.acquire(key, name, m)
	if err != nil {
		return nil, nil, err
	}
	return a, func() { l.loras.release(a) }, nil
}

func (s *loras) release(a *lora) {
	s.mu.Lock()
	a.pins--
	s.freeLocked(a)
	s.unlock()
}

// preload starts loading adapters that profiles name; a failure is logged and told to the requests
// that want it.
func (s *loras) preload(keys []LoRAKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.all[key] == nil && len(s.all) < s.most {
			s.startLocked(key)
		}
	}
}

func (s *loras) startLocked(key LoRAKey) {
	a := &lora{key: key}
	s.all[key] = a
	s.jobs.Add(1)
	go s.load(a)
}

// makeRoomLocked lets go of the adapter used longest ago that no request holds, when there are as
// many as there may be. It reports whether there is room for one more.
func (s *loras) makeRoomLocked() bool {
	if len(s.all) < s.most {
		return true
	}
	var victim *lora
	for _, a := range s.all {
		if a.pins == 0 && a.ready && (victim == nil || a.used < victim.used) {
			victim = a
		}
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

// close ends loads and frees everything. No batch runs and no request holds an adapter.
func (s *loras) close() {
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

// garbage is what nobody holds any more and is freed as soon as the lock is released.
type garbage struct {
	sets     []*adaptedSet
	adapters []*arch.Adapter
}

// freeLocked frees an adapter that was let go of and that nobody holds any more.
func (s *loras) freeLocked(a *lora) {
	if !a.gone || a.pins > 0 || a.sets > 0 {
		return
	}
	s.dead.adapters = append(s.dead.adapters, a.copies...)
	a.copies = nil
}

// unlock releases mu and frees what died meanwhile. A set lets go of its adapters when its programs
// are closed and not before: an adapter outlives every program that was recorded with it.
func (s *loras) unlock() {
	for {
		dead := s.dead
		s.dead = garbage{}
		s.mu.Unlock()
		for _, set := range dead.sets {
			for _, p := range set.programs {
				p.Close()
			}
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
			s.letGoLocked(set.adapters)
		}
	}
}

// letGoLocked ends the hold that a set, or the recording of one, has on adapters.
func (s *loras) letGoLocked(adapters []*lora) {
	for _, a := range adapters {
		a.sets--
		s.freeLocked(a)
	}
}

// LoRAOf is the adapter that a request under these options wants; ok is false for none. A client
// names adapters of the hub, or those that the model's load-time options name; directories are the
// operator's to name.
func LoRAOf(m *catalog.Resolved, o *catalog.RuntimeOptions, request map[string]any) (key LoRAKey, ok bool, err error) {
	if o.LoRAID == "" {
		return LoRAKey{}, false, nil
	}
	for _, known := range m.Loadtime.LoRAs {
		if known.Name == o.LoRAID {
			return LoRAKey{known.ID, known.Revision, true}, true, nil
		}
	}
	if o.LoRAID == m.Runtime.LoRAID {
		return LoRAKey{id: o.LoRAID, operator: true}, true, nil
	}
	_, named := request["lora_id"]
	if named && (catalog.IsPath(o.LoRAID) || !catalog.IsHubID(o.LoRAID)) {
		return LoRAKey{}, false, errs.Invalidf("options.lora_id",
			"Field 'options.lora_id' must name a hub repository such as \"org/name\", or an adapter of the model's lora_paths; got %.80q", o.LoRAID)
	}
	return LoRAKey{id: o.LoRAID, operator: !named}, true, nil
}

// lorasOf are the adapters that entries name in their profiles.
func lorasOf(users []*catalog.Resolved) (keys []LoRAKey) {
	add := func(k LoRAKey) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, m := range users {
		for _, known := range m.Loadtime.LoRAs {
			add(LoRAKey{known.ID, known.Revision, true})
		}
		if key, ok, err := LoRAOf(m, m.Runtime, nil); ok && err == nil {
			add(key)
		}
	}
	return keys
}
