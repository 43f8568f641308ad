// Package heap has a busy process collect its garbage less often. A gateway, a broker or a sidecar
// keeps a few MiB alive and makes tens of MiB of garbage a second, so that Go's rule, a collection
// whenever the heap has doubled, spent a tenth of its CPU on collections.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// room is the garbage in bytes that a busy process may have, whatever it keeps alive.
const room = 32 << 20

// A process is busy from the last of busyAfter collections, each within busyGap of the one before,
// until it has made none for idleGap.
const (
	busyAfter = 16
	busyGap   = time.Second
	idleGap   = 5 * time.Second
)

// The percentages of garbage, as GOGC: that of Go, and the most that is set, which bounds the first
// collection of a tiny heap.
const (
	usual = 100
	most  = 800
)

// GiveRoom lets the heap of this process have 32 MiB of garbage while it is busy, and as much as
// Go lets it have while it is not, or keeps more than 32 MiB alive. It does nothing where GOGC is
// set. It is called once.
func GiveRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	k := &keeper{percent: usual, set: func(percent int) { debug.SetGCPercent(percent) }, base: base}
	k.idle = time.AfterFunc(idleGap, k.rest)
	k.idle.Stop()
	runtime.SetFinalizer(&sentinel{k: k}, (*sentinel).collected)
}

// sentinel is garbage whose finalizer makes it garbage again: it hears of every collection.
type sentinel struct{ k *keeper }

func (s *sentinel) collected() {
	s.k.collected(time.Now())
	runtime.SetFinalizer(s, (*sentinel).collected)
}

// keeper decides how much garbage there may be.
type keeper struct {
	set  func(percent int)
	base func() int64 // bytes that percentages are of
	idle *time.Timer  // calls rest; runs while the process is busy

	mu      sync.Mutex
	last    time.Time // of the collections
	quick   int       // collections in a row within busyGap, at most busyAfter
	percent int
}

// collected takes note of a collection.
func (k *keeper) collected(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	soon := now.Sub(k.last) <= busyGap
	k.last = now
	switch {
	case k.quick == busyAfter: // busy, until rest says otherwise
	case soon:
		k.quick++
	default:
		k.quick = 0
	}
	if k.quick < busyAfter {
		return
	}
	k.idle.Reset(idleGap)
	percent := min(max(usual, int(room*100/max(k.base(), 1))), most)
	if 4*percent < 3*k.percent || 3*percent > 4*k.percent { // setting it stops the process for a moment
		k.percent = percent
		k.set(percent)
	}
}

// rest ends a busy time. The next allocation then begins a collection if there is more garbage than
// usual.
func (k *keeper) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.quick = 0
	if k.percent != usual {
		k.percent = usual
		k.set(usual)
	}
}

// base returns what Go takes percentages of: what the last collection left, and the stacks and
// globals that it looked through.
func base() int64 {
	all := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(all)
	sum := uint64(0)
	for _, s := range all {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return int64(sum)
}
