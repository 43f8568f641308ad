package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
)

// adapterSet returns a model with three adapters, of which two may be loaded at a time, and their
// keys by name.
func adapterSet(t *testing.T) (s *adapterCache, key func(name string) LoRAKey, entry *catalog.Resolved) {
	t.Helper()
	r := start(t, func(o *Options) { o.MaxLoRAs = 2 }, nil, adapted(t, "ce", copyModel(t, "rerank-sigmoid"),
		"rerank-sigmoid", "cross_encoder", "tasks: {score: {}}"))
	if err := r.Preload(t.Context(), "ce"); err != nil {
		t.Fatal(err)
	}
	s, entry = r.copy("ce").adapters, r.describe("ce")
	s.jobs.Wait()
	s.mu.Lock()
	defer s.unlock()
	clear(s.failed)
	for k, a := range s.all { // remove the preloaded adapters: the tests decide which are loaded and when
		delete(s.all, k)
		a.gone = true
		s.freeLocked(a)
	}
	return s, func(name string) LoRAKey {
		for _, l := range entry.Loadtime.LoRAs {
			if l.Name == name {
				return LoRAKey{id: l.ID, revision: l.Revision, operator: true}
			}
		}
		t.Fatal(name)
		return LoRAKey{}
	}, entry
}

// take pins an adapter once it is loaded.
func (s *adapterCache) take(t *testing.T, key LoRAKey, m *catalog.Resolved) *loadedAdapter {
	t.Helper()
	a, err := untilLoaded(t, func() (*loadedAdapter, error) { return s.acquire(key, key.id, m) })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *adapterCache) there() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.all {
		ids = append(ids, k.id[strings.LastIndexByte(k.id, '/')+1:])
	}
	slices.Sort(ids)
	return ids
}

// The least recently used adapter is removed, but never one that a request uses. A failure is
// returned to requests during its cooldown.
func TestWhichAdapterGoes(t *testing.T) {
	s, key, m := adapterSet(t)
	attention, all := s.take(t, key("attention"), m), s.take(t, key("all"), m)
	if _, err := s.acquire(key("saved"), "saved", m); errs.As(err).Code != errs.LoRALoading {
		t.Error(err)
	}
	if got := s.there(); !slices.Equal(got, []string{"all", "attention"}) || attention.replicas == nil ||
		all.replicas == nil {
		t.Fatalf("with both in use there are %v", got)
	}
	s.release(attention)
	s.release(all)
	s.release(s.take(t, key("attention"), m)) // all is now the least recently used
	_, err := untilLoaded(t, func() (*loadedAdapter, error) { return s.acquire(key("saved"), "saved", m) })
	if e := errs.As(err); e == nil || e.Status != 500 || !strings.Contains(e.Message, "modules_to_save") {
		t.Fatal(err)
	}
	if attention.replicas == nil || all.replicas == nil {
		t.Error("an adapter went for one that cannot be loaded")
	}
	twin := key("attention")
	twin.revision = "twin"
	s.release(s.take(t, twin, m))
	if attention.replicas == nil || all.replicas != nil {
		t.Error("the adapter that was used last went, the other stayed")
	}
	if _, again := s.acquire(key("saved"), "saved", m); again == nil || again.Error() != err.Error() {
		t.Errorf("during its cooldown the failure is told as %v", again)
	}
	s.jobs.Wait()
}

// A program takes 64 adapters, first those that the batch needs. A batch with more runs in parts.
func TestMaxAdaptersOfAProgram(t *testing.T) {
	s, key, m := adapterSet(t)
	one := s.take(t, key("attention"), m)
	defer s.release(one)
	v, err := s.model.Variant(s.model.weights.Own())
	if err != nil {
		t.Fatal(err)
	}
	wanted := []batch.Adapter{nil}
	for i := range maxProgramAdapters + 6 { // the same weights under other names
		a := &loadedAdapter{key: LoRAKey{id: fmt.Sprint(i)}, ready: true, replicas: one.replicas, pins: 1}
		s.all[a.key] = a
		wanted = append(wanted, a)
	}
	defer func() {
		s.mu.Lock()
		s.dropLocked(v.set)
		for _, a := range wanted[1:] {
			delete(s.all, a.(*loadedAdapter).key)
		}
		s.unlock()
	}()
	set, which, done, err := v.adapted(s, wanted[:3])
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if len(set.adapters) != maxProgramAdapters || !slices.Equal(which, []int32{-1, 0, 1}) {
		t.Errorf("a program of %d adapters; the batch has %v", len(set.adapters), which)
	}
	if _, _, _, err := v.adapted(s, wanted); !errors.Is(err, errTooManyAdapters) {
		t.Errorf("%d adapters in a batch: %v", len(wanted)-1, err)
	}
}

// LoRAOf accepts names of the model's adapters and hub ids; only the operator may name directories.
func TestWhoNamesAnAdapter(t *testing.T) {
	m := &catalog.Resolved{Loadtime: &catalog.LoadtimeOptions{
		LoRAs: []catalog.LoRA{{Name: "law", ID: "org/law", Revision: "abc"}, {Name: "twin", ID: "org/own"}},
	}, Runtime: &catalog.RuntimeOptions{LoRAID: "/adapters/own"}}
	hub := &catalog.Resolved{
		Loadtime: &catalog.LoadtimeOptions{}, Runtime: &catalog.RuntimeOptions{LoRAID: "org/own"},
	}
	for _, c := range []struct {
		asked string
		want  LoRAKey // zero: refused
	}{
		{"law", LoRAKey{id: "org/law", revision: "abc", operator: true}},
		{"org/other", LoRAKey{id: "org/other"}},
		{"/adapters/own", LoRAKey{id: "/adapters/own", operator: true}},
		{"/adapters/other", LoRAKey{}}, {"./own", LoRAKey{}}, {"~/own", LoRAKey{}},
		{"adapters/../own", LoRAKey{}}, {"two words", LoRAKey{}}, {"a/b/c", LoRAKey{}},
	} {
		key, ok, err := LoRAOf(m, &catalog.RuntimeOptions{LoRAID: c.asked},
			map[string]any{"lora_id": c.asked})
		if key != c.want || ok != (c.want != LoRAKey{}) || (err == nil) != ok {
			t.Errorf("%q: %v, %v, %v; want %v", c.asked, key, ok, err, c.want)
		}
	}
	if _, ok, err := LoRAOf(m, &catalog.RuntimeOptions{}, nil); ok || err != nil {
		t.Errorf("none: %v, %v", ok, err)
	}
	want := []LoRAKey{
		{id: "org/law", revision: "abc", operator: true}, {id: "org/own", operator: true},
		{id: "/adapters/own", operator: true},
	}
	if got := adapterKeysOf([]*catalog.Resolved{m, m, hub}); !slices.Equal(got, want) {
		t.Errorf("loaded with the model: %v, want %v", got, want)
	}
}

// A batch with adapters runs on any free device, because each device has the adapters.
func TestLoRAOnTwoDevices(t *testing.T) {
	r, _ := withAdapters(t, func(o *Options) {
		two(o)
		o.Batch.MaxRequests, o.MaxBatchTokens = 4, 60
	})
	res, err := untilLoaded(t, func() (*Result, error) { return r.Encode(t.Context(), four()) })
	if err != nil {
		t.Fatal(err)
	}
	want := string(res.Rows[0])
	idle := func() bool { // a device that has run fewer than three batches
		return slices.ContainsFunc(r.devices, func(d *device) bool { return d.runner.Stats().Batches < 3 })
	}
	for round := 0; round == 0 || idle() && round < 200; round++ {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				q := four()
				q.Texts = slices.Repeat(q.Texts, 60)
				res, err := r.Encode(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				for _, row := range res.Rows {
					if string(row) != want {
						t.Error("on another device another vector")
					}
				}
			})
		}
		all.Wait()
	}
	for i, d := range r.devices {
		if d.runner.Stats().Batches < 3 {
			t.Errorf("device %d ran %d batches", i, d.runner.Stats().Batches)
		}
	}
}
