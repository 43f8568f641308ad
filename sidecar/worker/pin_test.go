package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus/bustest"
)

// awaits waits until the server has these models pinned and loaded.
func (f *fakeServer) awaits(t *testing.T, what string, pinned ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		pins, loaded := slices.Clone(f.pins), slices.Clone(f.loaded)
		f.mu.Unlock()
		missing := slices.DeleteFunc(slices.Clone(pinned),
			func(id string) bool { return slices.Contains(loaded, id) })
		if slices.Equal(pins, pinned) && len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: pinned %v, loaded %v, want %v", what, pins, loaded, pinned)
		}
	}
}

// The models that a pool pins are loaded by every worker that it has, with nobody asking for them,
// and the server is told to keep them: while the pool has the worker, as the pool changes, and
// again when the server is another process or had the model unloaded.
func TestPinnedModels(t *testing.T) {
	s, f, other := bustest.Start(t, nil), startFake(t), startFake(t)
	g := newGateway(t, s, "gw")
	b, beats := newBucket(t, g), heartbeats(t, g)
	startSidecar(t, s, f, "w1")
	startSidecar(t, s, other, "w2")
	mine := poolOf("mine", 600, "w1", "w2")
	mine.Spec.Pinned = []string{"org/m", "org/b"}
	b.put(mine)
	f.awaits(t, "the pool is there", "org/m", "org/b")
	other.awaits(t, "its other worker", "org/m", "org/b")

	f.kill()
	f.start()
	f.awaits(t, "the server was started again", "org/m", "org/b")
	f.mu.Lock()
	f.loaded = []string{"org/m"}
	f.mu.Unlock()
	f.awaits(t, "a model was unloaded", "org/m", "org/b")

	fewer := poolOf("mine", 600, "w1")
	fewer.Spec.Pinned = []string{"org/b"}
	b.put(fewer)
	f.awaits(t, "the pool was changed", "org/b")
	other.awaits(t, "the pool gave the worker back")
	b.put()
	serves(t, beats, lane.Pool, "")
	f.awaits(t, "the pool is gone")
	brief := poolOf("brief", 600, "w1")
	brief.Spec.Pinned = []string{"org/m"}
	b.put(brief)
	f.awaits(t, "another pool", "org/m")
	brief.Spec.TTL = 1 // not before it is seen, however long that takes
	b.put(brief)
	f.awaits(t, "nobody renewed it")
}
