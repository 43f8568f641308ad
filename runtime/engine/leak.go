package engine

import (
	"runtime"
	"sync/atomic"
)

// leakReport, set by tests only, is told the kind of every handle that the collector finds
// unclosed. Nothing is freed by it: the order in which handles must be freed is not the collector's
// to choose.
var leakReport atomic.Pointer[func(kind string)]

// mark outlives its handle and remembers whether it was closed.
type mark struct{ closed atomic.Bool }

func (m *mark) close() {
	if m != nil {
		m.closed.Store(true)
	}
}

// watch returns the mark of a new handle, or nil when nobody looks for leaks.
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
