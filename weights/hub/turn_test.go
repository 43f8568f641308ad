package hub

import (
	"os"
	"path/filepath"
	"testing"
)

// Where no lock can be made, as in a read-only cache, a complete model is served and an incomplete
// one is a failure of the storage.
func TestCacheWithoutLocks(t *testing.T) {
	h := newHarness(t)
	if _, err := h.resolve(); err != nil {
		t.Fatal(err)
	}
	locks := filepath.Join(filepath.Dir(h.repo().dir), ".locks")
	if err := os.RemoveAll(locks); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(locks, nil, 0o600); err != nil { // a file where their folder must be
		t.Fatal(err)
	}
	s := &fetcher{cacheDir: filepath.Dir(h.repo().dir)}
	ref := modelRef{id: h.model.ID, revision: "main"}
	took, whole, err := s.takeTurn(t.Context(), ref, nil)
	if err != nil || !whole || took.fromCache().Dir != h.repo().snapshot(h.model.Commit) {
		t.Errorf("a whole model: %+v, %v, %v", took.held, whole, err)
	}
	ref.revision = "other"
	if _, whole, err = s.takeTurn(t.Context(), ref, nil); whole || ClassOf(err) != ClassStorage {
		t.Errorf("a revision that is not there: %v, %v", whole, err)
	}
}
