//go:build lockcheck

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Checked reports whether this build checks the order.
const Checked = true

// Mutex is a sync.Mutex at a place of the order. The zero value is unlocked.
type Mutex[P Place] struct{ mu sync.Mutex }

// Lock locks m. It panics when the goroutine holds a lock of the same place or a later one.
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

func (m *Mutex[P]) place() (int, string) {
	var p P
	return p.place()
}

func (m *Mutex[P]) check(g uint64) {
	at, name := m.place()
	for _, h := range held.of(g) {
		if before, other := h.place(); before >= at {
			panic(fmt.Sprintf("lockorder: %s is taken while %s is held", name, other))
		}
	}
}

// None panics when its caller holds a lock. what is the work or the wait that follows.
func None(what string) {
	for _, h := range held.of(goroutine()) {
		_, name := h.place()
		panic(fmt.Sprintf("lockorder: %s is held over work: %s", name, what))
	}
}

// held are the locks that goroutines hold, by the goroutine's number.
var held holders

type holders struct {
	mu sync.Mutex
	by map[uint64][]Place
}

func (h *holders) of(g uint64) []Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.by[g])
}

func (h *holders) add(g uint64, m Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = make(map[uint64][]Place)
	}
	h.by[g] = append(h.by[g], m)
}

func (h *holders) remove(g uint64, m Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.by[g], m)
	if i < 0 {
		_, name := m.place()
		panic(fmt.Sprintf("lockorder: %s is unlocked by a goroutine that did not lock it", name))
	}
	if left := slices.Delete(h.by[g], i, i+1); len(left) > 0 {
		h.by[g] = left
	} else {
		delete(h.by, g)
	}
}

// goroutine is the number of the calling goroutine, from the first line of its stack: "goroutine 7 [running]:".
func goroutine() uint64 {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	n, err := strconv.ParseUint(string(line[:bytes.IndexByte(line, ' ')]), 10, 64)
	if err != nil {
		panic("lockorder: the runtime writes stacks in another way")
	}
	return n
}
