package model

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sie-engine/sie/runtime/batch"
)

// loaded returns the model "lo", its own variant, and its only adapter. The adapter has no pins,
// and no programs are recorded with it.
func loaded(t *testing.T) (m *Model, v *Variant, a *loadedAdapter) {
	t.Helper()
	r, key := withAdapters(t, nil)
	if _, err := untilLoaded(t,
		func() (*Result, error) { return r.Encode(t.Context(), four()) }); err != nil {
		t.Fatal(err)
	}
	m = r.copy("lo")
	v, err := m.Variant(m.weights.Own())
	if err != nil {
		t.Fatal(err)
	}
	m.adapters.mu.Lock()
	a = m.adapters.all[key]
	m.adapters.dropLocked(v.set)
	m.adapters.unlock()
	return m, v, a
}

// evict removes the only adapter, as the load of another one does.
func (m *Model) evict(t *testing.T) {
	t.Helper()
	m.adapters.mu.Lock()
	m.adapters.limit = 1
	made := m.adapters.makeRoomLocked()
	m.adapters.unlock()
	if !made {
		t.Error("the adapter is not let go of")
	}
}

// held reports whether the adapter's weights exist and its bytes are counted.
func (m *Model) held(t *testing.T, a *loadedAdapter) bool {
	t.Helper()
	m.adapters.mu.Lock()
	defer m.adapters.unlock()
	if there := a.replicas != nil; there != (m.adapters.bytes.Load() > 0) {
		t.Errorf("its weights are there: %v; %d bytes count", there, m.adapters.bytes.Load())
	}
	return a.replicas != nil
}

// set returns the variant's set for the next batch.
func (m *Model) set(v *Variant) *adaptedSet {
	m.adapters.mu.Lock()
	defer m.adapters.unlock()
	return v.set
}

// An adapter that is removed while a batch runs with it is freed when the batch has run; no later
// batch uses it.
func TestAdapterStaysForItsBatch(t *testing.T) {
	m, v, a := loaded(t)
	set, which, done, err := v.adapted(m.adapters, []batch.Adapter{a})
	if err != nil || len(which) != 1 || which[0] != 0 || m.set(v) != set {
		t.Fatalf("%+v, %v, %v", set, which, err)
	}
	m.evict(t)
	if !a.gone || !m.held(t, a) || len(set.programs) == 0 {
		t.Error("the adapter is freed under its batch")
	}
	if m.set(v) != nil {
		t.Error("the next batch would get programs of an adapter that is gone")
	}
	done()
	if m.held(t, a) || a.sets != 0 {
		t.Errorf("the adapter is not freed behind its batch: %+v", a)
	}
}

// An adapter that is removed while programs are recorded with it is freed when the batch that needs
// them has run; no other batch uses these programs.
func TestAdapterStaysForItsRecording(t *testing.T) {
	m, v, a := loaded(t)
	begun, open := make(chan struct{}), make(chan struct{})
	m.host.records = func() { begun <- struct{}{}; <-open }
	var recording sync.WaitGroup
	var set *adaptedSet
	var done func()
	recording.Go(func() {
		var err error
		if set, _, done, err = v.adapted(m.adapters, []batch.Adapter{a}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	m.evict(t)
	if !m.held(t, a) {
		t.Error("the adapter is freed under its recording")
	}
	close(open)
	recording.Wait()
	if t.Failed() {
		return
	}
	if !m.held(t, a) || len(set.adapters) != 1 || m.set(v) != nil {
		t.Errorf("after the recording: %+v, kept %+v", set, m.set(v))
	}
	done()
	if m.held(t, a) {
		t.Error("the adapter is not freed behind its batch")
	}
	m.host.records = nil
}

// Batches that want the same adapter at the same time share one recording.
func TestAdaptersAreRecordedOnce(t *testing.T) {
	m, v, a := loaded(t)
	defer func() { m.host.records = nil }()
	synctest.Test(t, func(t *testing.T) {
		open, recordings := make(chan struct{}), make(chan struct{}, 16)
		m.host.records = func() { recordings <- struct{}{}; <-open }
		var sets [4]*adaptedSet
		var all sync.WaitGroup
		for i := range sets {
			all.Go(func() {
				set, _, done, err := v.adapted(m.adapters, []batch.Adapter{a})
				if err != nil {
					t.Error(err)
					return
				}
				sets[i] = set
				done()
			})
		}
		synctest.Wait() // one goroutine records, the others wait for it
		if n := len(recordings); n != 1 {
			t.Errorf("%d recordings have begun", n)
		}
		close(open)
		all.Wait()
		for _, set := range sets[1:] {
			if set != sets[0] {
				t.Error("batches that want the same adapter have programs of their own")
			}
		}
		if n := len(recordings); n != 1 || v.recording != nil {
			t.Errorf("%d recordings", n)
		}
	})
}
