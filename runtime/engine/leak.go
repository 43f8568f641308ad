package engine

import (
	"runtime"
	"sync/atomic"
)

// leakReport is set by tests only. It is called with the kind of every handle that the garbage
// collector finds unclosed. It frees nothing, because handles must be freed in an order that the
// collector does not know.
var leakReport atomic.Pointer[func(kind string)]

// mark outlives its handle and records whether the handle was closed.
type mark struct{ closed atomic.Bool }

func (m *mark) close() {
	if m != nil {
		m.closed.Store(true)
	}
}

// watch returns the mark of a new handle, or nil unless leakReport is set.
func watch[T any](handle *T, kind string) *mark {
	report := leakReport.Load()
	if report == nil {
		return nil
	}
	m := new(mark)
	runtime.AddCleanup(handle, func(m *mark) {
		if !m.closed.Load() {
			(*report)(kind)
		}
	}, m)
	return m
}
