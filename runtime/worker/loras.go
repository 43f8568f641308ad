package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// loras are the LoRA adapters of one model: loaded on demand in the background, kept while they are used, the least recently
// used one gone when there are too many. Sequences of one batch may have different ones.
type loras struct {
	model  *model
	most   int
	ctx    context.Context
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	mu   sync.Mutex // guards the fields below, the entries, and the sets of the model's variants
	all  map[loraKey]*lora
	used uint64
}

// loraKey names an adapter: a hub id or a directory, and the revision of the former.
type loraKey struct{ id, revision string }

// lora is an adapter on every device. It is what batch.Item.Adapter holds.
type lora struct {
	key    loraKey
	state  loraState
	err    error           // of a failed load, until somebody was told
	copies []*arch.Adapter // on each device, once ready
	pins   int             // requests that use it
	sets   int             // recorded programs that hold it
	used   uint64
	gone   bool // freed when neither holds it
}

type loraState uint8

const (
	loraLoading loraState = iota
	loraReady
	loraFailed
)

func newLoras(l *model, most int) *loras {
	ctx, cancel := context.WithCancel(context.Background())
	return &loras{model: l, most: most, ctx: ctx, cancel: cancel, all: make(map[loraKey]*lora)}
}

// acquire pins the adapter that a request calls name, or says that it is being loaded, which the first to ask for it starts.
func (s *loras) acquire(key loraKey, name string, m *catalog.Resolved) (*lora, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.all[key]
	if a == nil {
		if !s.makeRoomLocked() {
			return nil, errs.LoadingLoRA(name, m.ID) // every adapter is in use at this moment; later one is not
		}
		s.startLocked(key)
		return nil, errs.LoadingLoRA(name, m.ID)
	}
	switch a.state {
	case loraLoading:
		return nil, errs.LoadingLoRA(name, m.ID)
	case loraFailed:
		delete(s.all, key) // told once; the next request tries again
		if errors.Is(a.err, engine.ErrNoMemory) {
			return nil, errs.OutOfMemory("LoRA", a.err)
		}
		e := errs.LoRAFailed(name, m.ID, a.err)
		e.Message += ": " + publicCause(a.err)
		return nil, e
	}
	s.used++
	a.used = s.used
	a.pins++
	return a, nil
}

// adapter pins the adapter that a plan wants, if any, until drop is called.
func (l *model) adapter(p *plan) (adapter batch.Adapter, drop func(), err error) {
	if p.lora == nil {
		return nil, func() {}, nil
	}
	a, err := l.loras.acquire(*p.lora, p.options.LoRAID, p.model)
	if err != nil {
		return nil, nil, err
	}
	return a, func() { l.loras.release(a) }, nil
}

func (s *loras) release(a *lora) {
	s.mu.Lock()
	a.pins--
	s.freeLocked(a)
	s.mu.Unlock()
}

// preload starts loading adapters that profiles name; a failure is logged and told to the first request.
func (s *loras) preload(keys []loraKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.all[key] == nil && len(s.all) < s.most {
			s.startLocked(key)
		}
	}
}

func (s *loras) startLocked(key loraKey) {
	a := &lora{key: key}
	s.all[key] = a
	s.jobs.Add(1)
	go s.load(a)
}

// load finds and packs an adapter, in turn with the loads of models: its memory is of the same budget.
func (s *loras) load(a *lora) {
	defer s.jobs.Done()
	w := s.model.w
	found, err := w.opt.Hub.Resolve(s.ctx, a.key.id, a.key.revision)
	if err == nil {
		err = w.models.Alone(s.ctx, func() error { return s.pack(a, found.Dir) })
		found.Release()
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, registry.ErrBusy): // no failure: the next request tries again
		delete(s.all, a.key)
	case s.ctx.Err() == nil: // else the model goes, and all it has
		w.opt.Log.Warn("LoRA adapter failed to load", "lora", a.key.id, "weights", s.model.key, "error", err)
	}
	a.state, a.err = loraFailed, err
}

// pack packs the adapter in dir on every device and makes it ready, if there is room for it beside its model.
func (s *loras) pack(a *lora, dir string) (err error) {
	var copies []*arch.Adapter
	defer func() {
		if err != nil {
			for _, packed := range copies {
				packed.Close()
			}
		}
	}()
	for _, c := range s.model.copies {
		packed, err := c.LoadAdapter(dir)
		if err != nil {
			return err
		}
		copies = append(copies, packed)
	}
	bytes := copies[0].Bytes()
	if err := s.model.w.makeRoom(s.ctx, need{packed: bytes, whole: bytes, what: "a LoRA adapter needs", spare: s.model.key}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.state, a.copies = loraReady, copies
	s.model.w.opt.Log.Info("LoRA adapter ready", "lora", a.key.id, "weights", s.model.key, "rank", copies[0].Rank, "packed_kib", bytes>>10)
	return nil
}

// makeRoomLocked lets go of the adapter used longest ago that no request holds, when there are as many as there may be. It
// reports whether there is room for one more.
func (s *loras) makeRoomLocked() bool {
	if len(s.all) < s.most {
		return true
	}
	var victim *lora
	for _, a := range s.all {
		if a.pins == 0 && a.state != loraLoading && (victim == nil || a.used < victim.used) {
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

// freeLocked frees an adapter that was let go of and that nobody holds any more.
func (s *loras) freeLocked(a *lora) {
	if !a.gone || a.pins > 0 || a.sets > 0 {
		return
	}
	for _, c := range a.copies {
		c.Close()
	}
	a.copies = nil
}

// bytes is what the adapters take on all devices.
func (s *loras) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		for _, c := range a.copies {
			n += c.Bytes()
		}
	}
	return n
}

// close ends loads and frees everything. No batch runs and no request holds an adapter.
func (s *loras) close() {
	s.cancel()
	s.jobs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range s.model.adaptedSets() {
		s.dropLocked(set)
	}
	for _, a := range s.all {
		a.gone = true
		s.freeLocked(a)
	}
	s.all = nil
}

// loraOf is the adapter that a request under these options wants; ok is false for none. A client names adapters of the hub, or
// those that the model's load-time options name; directories are the operator's to name.
func loraOf(m *catalog.Resolved, o *catalog.RuntimeOptions, request map[string]any) (key loraKey, ok bool, err error) {
	if o.LoRAID == "" {
		return loraKey{}, false, nil
	}
	for _, known := range m.Loadtime.LoRAs {
		if known.Name == o.LoRAID {
			return loraKey{known.ID, known.Revision}, true, nil
		}
	}
	if _, named := request["lora_id"]; named && o.LoRAID != m.Runtime.LoRAID && (catalog.IsPath(o.LoRAID) || !catalog.IsHubID(o.LoRAID)) {
		return loraKey{}, false, errs.Invalidf("options.lora_id",
			"Field 'options.lora_id' must name a hub repository such as \"org/name\", or an adapter of the model's lora_paths; got %.80q", o.LoRAID)
	}
	return loraKey{id: o.LoRAID}, true, nil
}

// lorasOf are the adapters that entries name in their profiles.
func lorasOf(users []*catalog.Resolved) (keys []loraKey) {
	add := func(k loraKey) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, m := range users {
		for _, known := range m.Loadtime.LoRAs {
			add(loraKey{known.ID, known.Revision})
		}
		if key, ok, err := loraOf(m, m.Runtime, nil); ok && err == nil {
			add(key)
		}
	}
	return keys
}

var errTooManyLoras = fmt.Errorf("worker: a batch has more adapters than a program takes")
