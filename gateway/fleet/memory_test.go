package fleet

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/sie-engine/sie/internal/bus"
)

// What a fleet counts for its heartbeats is not far below what they take, whatever is in them.
func TestHeartbeatsTakeWhatIsCounted(t *testing.T) {
	many, models := make([]string, 100_000), make([]string, bus.MaxHeartbeatModels)
	pending := map[string]bus.Pending{}
	for i := range many {
		many[i] = "m"
	}
	for i := range models {
		models[i] = fmt.Sprintf("%x", i)
		pending[models[i]] = bus.Pending{}
	}
	for name, change := range map[string]func(*bus.WorkerHeartbeat){
		"small": nil,
		"lists": func(h *bus.WorkerHeartbeat) {
			h.LoadedModels, h.LoadingModels = models, models
			h.FailedModels, h.UnsupportedModels = models, models
		},
		"pending":         func(h *bus.WorkerHeartbeat) { h.Pending = pending },
		"serving nothing": func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = many },
	} {
		const workers = 40
		f := New(quiet())
		subjects, all := make([]string, workers), make([][]byte, workers)
		for i := range workers {
			subjects[i], all[i] = heartbeat(fmt.Sprint("w", i), change)
		}
		before := heap()
		for i := range workers {
			f.Heartbeat(subjects[i], all[i])
		}
		took := int64(heap() - before)
		if n := len(f.Snapshot().Workers); n != workers {
			t.Errorf("%s: %d workers", name, n)
		}
		if counted := f.bytes; took > 2*counted+64<<10 {
			t.Errorf("%s: %d bytes are counted, and %d are taken", name, counted, took)
		}
		runtime.KeepAlive(all)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
