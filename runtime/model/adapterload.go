package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/runtime/arch"
	peft "github.com/sie-engine/sie/runtime/lora"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
)

const (
	// maxAdapterBytes bounds the download of an adapter: its values in float32, and 16 MiB for
	// headers and configuration.
	maxAdapterBytes = peft.MaxBytes + 16<<20
	// maxFailedAdapters bounds the failures that a model remembers. At the bound, the one whose
	// cooldown ends first is forgotten.
	maxFailedAdapters = 1024
	// awaitStep is the time after which await looks again.
	awaitStep = 10 * time.Millisecond
)

// load finds and packs an adapter. It shares the limit on downloads, the turns to pack and the
// memory budget with the loads of models.
func (s *adapterCache) load(a *loadedAdapter) {
	defer s.jobs.Done()
	h := s.model.host
	err := guard.Run(func() error {
		found, err := s.find(a.key)
		if err != nil {
			return err
		}
		defer found.Release()
		return h.models.PackAlone(s.ctx, func() error { return s.pack(a, found.Dir) })
	})
	f := s.ended(a.key, err)
	if f == nil {
		return
	}
	log := h.opt.Log.Warn
	if f.Permanent && !a.key.operator { // an error of the client, which gets it as its answer
		log = h.opt.Log.Debug
	}
	log("LoRA adapter failed to load",
		append([]any{"lora", a.key.id, "weights", s.model.key}, guard.About(err)...)...)
}

// ended records the result of a load. It returns the failure, or nil if there is none to report.
func (s *adapterCache) ended(key LoRAKey, err error) *registry.Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.failed, key)
		return nil
	}
	delete(s.all, key)
	// the model is being unloaded, or the next request tries again
	if s.ctx.Err() != nil || errors.Is(err, registry.ErrBusy) {
		return nil
	}
	s.rememberLocked(key, err)
	return s.failed[key]
}

// find finds the adapter on this machine or downloads it. Only a key of the operator may be a
// directory. To pack an adapter its own files are enough: where they are here and the hub cannot be
// asked for those beside them, they are taken.
func (s *adapterCache) find(key LoRAKey) (found hub.Resolved, err error) {
	h := s.model.host
	a := key.onHub()
	found, ok, err := h.opt.Hub.FindAdapter(s.ctx, a)
	if ok || err != nil {
		return found, err
	}
	err = h.models.Fetch(s.ctx, func(ctx context.Context) error {
		found, err = h.opt.Hub.ResolveAdapter(ctx, a)
		return err
	})
	if err != nil && a.Beside != nil {
		a.Beside = nil
		if alone, ok, own := h.opt.Hub.FindAdapter(s.ctx, a); ok && own == nil {
			return alone, nil
		}
	}
	return found, err
}

// onHub returns what is asked for to find or download the adapter of k. Of an operator's it is all
// that says what the repository is for, because the repository may be named as a model.
func (k LoRAKey) onHub() hub.Adapter {
	a := hub.Adapter{ID: k.id, Revision: k.revision, Directories: k.operator, MaxBytes: maxAdapterBytes}
	if k.operator {
		a.Beside = arch.RepoFiles
	}
	return a
}

// pack packs the adapter in dir on every device and marks it as ready. It makes room for it among
// the model's adapters, and in memory without unloading its own model.
func (s *adapterCache) pack(a *loadedAdapter, dir string) (err error) {
	var replicas []*arch.Adapter
	defer func() {
		if err != nil {
			for _, packed := range replicas {
				packed.Close()
			}
		}
	}()
	for _, c := range s.model.replicas {
		packed, err := c.LoadAdapter(dir)
		if err != nil {
			return err
		}
		replicas = append(replicas, packed)
	}
	s.mu.Lock()
	room := s.makeRoomLocked()
	s.unlock()
	if !room {
		return fmt.Errorf("every LoRA adapter is in use: %w", registry.ErrBusy)
	}
	bytes := replicas[0].Bytes()
	if err := s.model.host.makeRoom(s.ctx,
		need{packed: bytes, whole: bytes, what: "a LoRA adapter needs", spare: s.model.key}); err != nil {
		return err
	}
	for _, c := range replicas {
		s.bytes.Add(c.Bytes())
	}
	s.mu.Lock()
	a.ready, a.replicas = true, replicas
	s.mu.Unlock()
	s.model.host.opt.Log.Info("LoRA adapter ready", "lora", a.key.id, "weights", s.model.key,
		"rank", replicas[0].Rank, "packed_kib", bytes>>10)
	return nil
}

// await loads the adapter that requests of m get if they name none, and waits until it is loaded,
// for at most Options.LoadTimeout. A failed load ends the wait; one that found every adapter in use
// is begun again. Errors are those of acquire, or ctx's cause.
func (s *adapterCache) await(ctx context.Context, key LoRAKey, m *catalog.Resolved) error {
	limit := time.NewTimer(cmp.Or(s.model.host.opt.LoadTimeout, registry.DefaultTimeout))
	defer limit.Stop()
	again := time.NewTicker(awaitStep)
	defer again.Stop()
	for {
		a, err := s.acquire(key, m.Runtime.LoRAID, m)
		if err == nil {
			s.release(a)
			return nil
		}
		if errs.As(err).Code != errs.LoRALoading {
			return err
		}
		select {
		case <-again.C:
		case <-limit.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rememberLocked stores a failure with its cooldown, which doubles with each failure of the same
// adapter.
func (s *adapterCache) rememberLocked(key LoRAKey, err error) {
	if s.failed[key] == nil && len(s.failed) >= maxFailedAdapters {
		var first LoRAKey
		for k, f := range s.failed {
			if s.failed[first] == nil || f.Until.Before(s.failed[first].Until) {
				first = k
			}
		}
		delete(s.failed, first)
	}
	f := s.model.host.models.Failed(s.failed[key], err)
	_, f.Permanent = classify(err)
	s.failed[key] = f
}

// refusalLocked returns the error for a request whose adapter failed to load recently, or nil if
// the load may be tried again. A permanent failure of an adapter that the client chose is an
// invalid request.
func (s *adapterCache) refusalLocked(key LoRAKey, name string, m *catalog.Resolved) error {
	f := s.failed[key]
	switch {
	case f == nil:
		return nil
	case noMemory(f.Err): // returned once, then forgotten: memory may be free at the next request
		delete(s.failed, key)
		return errs.OutOfMemory("LoRA", f.Err)
	case !time.Now().Before(f.Until):
		return nil
	case f.Permanent && !key.operator:
		return errs.Invalidf("options.lora_id",
			"Field 'options.lora_id' names %.80q, which cannot be used: %s", name, publicCause(f.Err))
	}
	e := errs.LoRAFailed(name, m.ID, f.Err)
	e.Message += ": " + publicCause(f.Err)
	return e
}
