package fold

import (
	"runtime"
	"sync"
	"weak"
)

var (
	muveraTables tableCache[cacheKey[Muvera], MuveraTables]
	smveTables   tableCache[cacheKey[SMVE], SMVETables]
)

// cacheKey is a configuration and the width of the tokens.
type cacheKey[C comparable] struct {
	config   C
	tokenDim int
}

// tableCache gives all callers with one key the same value for as long as one of them holds it. The
// zero value is ready to use.
type tableCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*entry[V] // of values that are held or being made
}

type entry[V any] struct {
	users    int        // calls of get that use the entry; guarded by tableCache.mu
	building sync.Mutex // held while value is read or made
	value    weak.Pointer[V]
}

// get returns the value of the key and makes it when no caller holds it. Other callers with the
// same key wait meanwhile; callers with other keys do not.
func (s *tableCache[K, V]) get(key K, create func() *V) *V {
	e := s.reference(key)
	defer s.unreference(key, e)
	e.building.Lock()
	defer e.building.Unlock()
	if v := e.value.Value(); v != nil {
		return v
	}
	v := create()
	e.value = weak.Make(v)
	runtime.AddCleanup(v, s.forget, key)
	return v
}

func (s *tableCache[K, V]) reference(key K) *entry[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[K]*entry[V]{}
	}
	e := s.entries[key]
	if e == nil {
		e = &entry[V]{}
		s.entries[key] = e
	}
	e.users++
	return e
}

func (s *tableCache[K, V]) unreference(key K, e *entry[V]) {
	s.mu.Lock()
	e.users--
	s.mu.Unlock()
	s.forget(key)
}

// forget drops the entry of a value that is neither held nor being made.
func (s *tableCache[K, V]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil && e.users == 0 && e.value.Value() == nil {
		delete(s.entries, key)
	}
}
