package model

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/runtime/registry"
)

// No lock is held while programs are recorded, so other requests go on. Requests for the same
// program share one recording.
func TestNothingWaitsForARecording(t *testing.T) {
	r, key := withAdapters(t, nil)
	if _, err := untilLoaded(t,
		func() (*Result, error) { return r.Encode(t.Context(), four()) }); err != nil {
		t.Fatal(err)
	}
	m := r.copy("lo")
	var recordings atomic.Int32
	begun, open := make(chan struct{}, 8), make(chan struct{})
	r.records = func() {
		recordings.Add(1)
		begun <- struct{}{}
		<-open
	}
	own := m.weights.Own()
	other := own
	other.Pooling = 1 + own.Pooling%2

	var all sync.WaitGroup
	defer all.Wait()
	defer sync.OnceFunc(func() { close(open) })()
	got := make(chan *Variant, 3)
	for range 3 {
		all.Go(func() {
			v, err := m.Variant(other)
			if err != nil {
				t.Error(err)
			}
			got <- v
		})
	}
	<-begun
	everybody := func() {
		r.AllFull()
		r.Full("lo")
		r.models.Bytes()
		r.models.Get(m.key)
		m.Idle()
		m.largest()
		r.States()
		if _, err := r.opt.Metrics.Registry.Gather(); err != nil {
			t.Error(err)
		}
		if v, err := m.Variant(own); err != nil || v == nil {
			t.Errorf("what is recorded: %v", err)
		}
		a, err := m.adapters.acquire(key, "four", r.describe("lo"))
		if err != nil {
			t.Fatal(err)
		}
		m.adapters.release(a)
	}
	everybody()

	v, err := m.Variant(own) // its set is removed below, so that the next batch records one
	if err != nil {
		t.Fatal(err)
	}
	m.adapters.mu.Lock()
	m.adapters.dropLocked(v.set)
	m.adapters.unlock()
	for range 2 {
		all.Go(func() {
			if _, err := r.Encode(t.Context(), four()); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	everybody()
	if r.state("lo") != registry.Loaded {
		t.Error(r.state("lo"))
	}
	open <- struct{}{}
	open <- struct{}{}
	first := <-got
	for range 2 {
		if v := <-got; v != first {
			t.Error("callers that want the same got different variants")
		}
	}
	if n := recordings.Load(); n != 2 {
		t.Errorf("%d recordings, want one of the variant and one of the adapters", n)
	}
}
