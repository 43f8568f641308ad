package fleet

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/bus"
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
