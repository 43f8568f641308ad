//go:build lockcheck

package lockorder

import (
	"fmt"
	"slices"
	"sync"
)

// Checked reports whether this build checks the order.
const Checked = true

// Mutex is a sync.Mutex with a rank in the order. The zero value is unlocked.
type Mutex[P Rank] struct{ mu sync.Mutex }

// Lock locks m. It panics when the goroutine holds a lock of the same or a later rank.
func (m *Mutex[P]) Lock() {
	g := goroutine()
	m.check(g)
	m.mu.Lock()
	held.add(g, m)
}

// TryLock tries to lock m, in the order of Lock.
func (m *Mutex[P]) TryLock() bool {
	g := goroutine()
	m.check(g)
	ok := m.mu.TryLock()
	if ok {
		held.add(g, m)
	}
	return ok
}

// Unlock unlocks m. It panics when another goroutine locked it.
func (m *Mutex[P]) Unlock() {
	held.remove(goroutine(), m)
	m.mu.Unlock()
}

func (m *Mutex[P]) rank() (int, string) {
	var p P
	return p.rank()
}

func (m *Mutex[P]) check(g uintptr) {
	at, name := m.rank()
	for _, h := range held.of(g) {
		if before, other := h.rank(); before >= at {
			panic(fmt.Sprintf("lockorder: %s is taken while %s is held", name, other))
		}
	}
}

// AssertNoneHeld panics when its caller holds a lock. what names the work or the wait that follows.
func AssertNoneHeld(what string) {
	for _, h := range held.of(goroutine()) {
		_, name := h.rank()
		panic(fmt.Sprintf("lockorder: %s is held over work: %s", name, what))
	}
}

// held lists the locks that goroutines hold.
var held holders

// holders is split into parts, so that goroutines do not wait for each other to record their locks.
type holders [64]struct {
	mu sync.Mutex
	by map[uintptr][]Rank // by goroutine
}

func (h *holders) of(g uintptr) []Rank {
	part := &h[g>>8%uintptr(len(h))]
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.by[g] // only this goroutine changes it
}

func (h *holders) add(g uintptr, m Rank) {
	part := &h[g>>8%uintptr(len(h))]
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.by == nil {
		part.by = make(map[uintptr][]Rank)
	}
	part.by[g] = append(part.by[g], m)
}

func (h *holders) remove(g uintptr, m Rank) {
	part := &h[g>>8%uintptr(len(h))]
	part.mu.Lock()
	defer part.mu.Unlock()
	i := slices.Index(part.by[g], m)
	if i < 0 {
		_, name := m.rank()
		panic(fmt.Sprintf("lockorder: %s is unlocked by a goroutine that did not lock it", name))
	}
	if left := slices.Delete(part.by[g], i, i+1); len(left) > 0 {
		part.by[g] = left
	} else {
		delete(part.by, g)
	}
}
