package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// The epoch of a worker is that of its last process, at once. It is unknown while none is told, of
// a worker that has gone, and while two processes have the worker's id.
func TestEpochs(t *testing.T) {
	f := New(quiet()) // nothing runs: snapshots are of heartbeats alone
	f.Connected()
	for i, c := range []struct{ sent, want string }{
		{"", ""}, {"a", "a"}, {"a", "a"}, {"b", "b"}, {"b", "b"},
		{"a", ""}, {"b", ""}, {"b", ""}, // both run
		{"c", "c"}, {"", ""}, {"d", "d"}, {"", ""}, {"d", ""}, {"e", "e"},
	} {
		before := f.Snapshot().Worker("w")
		f.Heartbeat(heartbeat("w", func(h *bus.WorkerHeartbeat) { h.Epoch = c.sent }))
		w := f.Snapshot().Worker("w")
		if w.Epoch() != c.want {
			t.Errorf("heartbeat %d of epoch %q: epoch %q, want %q", i, c.sent, w.Epoch(), c.want)
		}
		if w.Came.IsZero() || before != nil && w.Came.Before(before.Came) {
			t.Errorf("heartbeat %d came at %v", i, w.Came)
		}
		gone := *w
		if gone.Live = false; gone.Epoch() != "" {
			t.Errorf("a worker that is not live has the epoch %q", gone.Epoch())
		}
	}
	for _, bad := range []string{"a.b", "a b", strings.Repeat("x", 1000)} {
		refused := f.refused.Load()
		f.Heartbeat(heartbeat("w", func(h *bus.WorkerHeartbeat) { h.Epoch = bad }))
		if f.refused.Load() != refused+1 {
			t.Errorf("the epoch %.20q is taken", bad)
		}
	}
}

// A lane has lost a worker for a moment after one fell silent, or another process took its place.
// One that joined, or ended in order, was not lost.
func TestALaneThatLostAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(quiet())
		f.Connected()
		beat := func(id, epoch string, ended bool) {
			f.Heartbeat(heartbeat(id, func(h *bus.WorkerHeartbeat) { h.Epoch, h.Terminated = epoch, ended }))
		}
		lost := func(want bool, when string) {
			t.Helper()
			s := f.Snapshot()
			if got := s.Lost(s.Workers[0].Lane, time.Now()); got != want {
				t.Errorf("%s: lost is %v", when, got)
			}
			if s.Lost(bus.Lane{Pool: "other", Profile: "x", Bundle: "y"}, time.Now()) {
				t.Errorf("%s: another lane has lost one", when)
			}
		}
		live := func(beats int, ids ...string) {
			for range beats {
				for _, id := range ids {
					beat(id, "a", false)
				}
				for range work.WorkerHeartbeat / tick {
					time.Sleep(tick)
					f.grow()
				}
			}
		}
		beat("w", "a", false)
		beat("x", "a", false)
		lost(false, "both are new")
		beat("x", "a", true)
		lost(false, "one ended in order")
		live(30, "w")
		beat("w", "b", false)
		lost(true, "started again")
		beat("w", "a", false)
		beat("w", "b", false)
		beat("w", "a", false)
		lost(false, "two processes have one id")
		live(30, "w", "x")
		live(2, "w")
		lost(false, "one heartbeat is missing")
		live(3, "w")
		lost(true, "one is silent")
		live(10, "w")
		lost(false, "long after")
	})
}
