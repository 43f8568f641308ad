package configd

import (
	"context"
	"testing"
)

// While a store holds a change up, another whose caller leaves ends without a change, and Refresh,
// which the process's loop calls, does not wait.
func TestNobodyWaitsForAStoreForLong(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.turn <- struct{}{}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if status, out := s.apply(gone, &write{}); status != 503 {
		t.Errorf("%d %v", status, out)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	s.pass()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
