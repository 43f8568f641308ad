package httpd

import (
	"sync"
	"sync/atomic"
	"time"
)

// gate counts the running inference requests, and admits no more once it is shut. Safe for
// concurrent use.
type gate struct {
	mu      sync.Mutex
	running int
	isShut  atomic.Bool   // written under mu
	shutAt  time.Time     // of shut
	idle    chan struct{} // closed when it is shut and nothing runs
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter reports whether a request may run; if so, the caller later calls leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut.Load() {
		return false
	}
	g.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.isShut.Load() && g.running == 0 {
		close(g.idle)
	}
}

// shut refuses further requests. It reports whether this call shut the gate.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut.Load() {
		return false
	}
	g.shutAt = time.Now()
	g.isShut.Store(true)
	if g.running == 0 {
		close(g.idle)
	}
	return true
}

func (g *gate) closed() bool { return g.isShut.Load() }

// count returns the number of running requests.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}
