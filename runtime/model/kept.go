package model

import (
	"math"
	"sync"
)

// Values that requests keep with a model lie in the host's memory, go with the model, and bound
// themselves. Those that grow are counted (CountKept) and can be given up (Droppable), so that
// Options.MemoryBudget holds with them where it bounds the host's memory.

// Droppable is a value of Keep that gives up what it has when a load needs the room, and makes it
// again when it is asked for.
type Droppable interface{ Drop() }

// Keep returns the value of key. make is called once per key, at the first call; the value lives as
// long as the model is loaded.
func (l *Model) Keep(key any, make func() any) any {
	once, ok := l.kept.Load(key)
	if !ok {
		once, _ = l.kept.LoadOrStore(key, sync.OnceValue(make))
	}
	return once.(func() any)()
}

// CountKept adds n to the bytes that values of Keep have; n is negative where they gave some up.
func (l *Model) CountKept(n int64) { l.keptBytes.Add(n) }

// RoomForKept returns how many bytes more values of Keep may have; below 0, how many they should
// give up. Only a memory budget in the host's memory bounds them.
func (l *Model) RoomForKept() int64 {
	h := l.host
	if h.opt.MemoryBudget == 0 || !h.inHostMemory() {
		return math.MaxInt64
	}
	return h.opt.MemoryBudget*int64(len(h.devices)) - h.models.Bytes()
}

// inHostMemory reports whether models lie in the host's memory.
func (h *Host) inHostMemory() bool { return h.devices[0].memory == nil }

// dropKept has all loaded models give up what they keep and can make again. It reports whether any
// had something.
func (h *Host) dropKept() bool {
	dropped := false
	h.loaded.Range(func(_, l any) bool {
		m := l.(*Model)
		if m.keptBytes.Load() == 0 {
			return true
		}
		m.kept.Range(func(_, once any) bool {
			if v, ok := once.(func() any)().(Droppable); ok {
				v.Drop()
				dropped = true
			}
			return true
		})
		return true
	})
	return dropped
}
