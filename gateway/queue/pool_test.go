package queue

import (
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
)

// A request to a pool that does not exist is refused before its body is read, and makes nothing.
func TestAnUnknownPoolCostsNoBody(t *testing.T) {
	g := newRig(t, nil)
	s := g.backend.Begin(inference.Head{Pool: "nope"})
	if _, err := s.Model(modelID); err != nil {
		t.Fatal(err)
	}
	if e := errs.As(s.Check()); e == nil || e.Code != errs.PoolNotFound || e.Status != 404 {
		t.Errorf("%v", e)
	}
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if len(g.queue.pools) > 0 || len(g.queue.lines) > 0 || len(g.demand.lanes) > 0 {
		t.Errorf("it made %v, %v, %v", g.queue.pools, g.queue.lines, g.demand.lanes)
	}
}
