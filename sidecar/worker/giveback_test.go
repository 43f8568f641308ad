package worker

import (
	"testing"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// peer makes another ready worker of the lane known, as changed.
func (s *sim) peer(name string, change func(*bus.WorkerHeartbeat)) {
	h := bus.WorkerHeartbeat{Name: name, Ready: true, PoolName: lane.Pool, MachineProfile: lane.Profile,
		Bundle: lane.Bundle}
	change(&h)
	s.c.heartbeatOf(&h)
}

// A slice whose server died here goes to another worker that pulls it: one that is ready, has the
// model and has not died with the slice. A worker that would have to load the model does not pull
// now, and the slice would come back here.
func TestASliceThatDiedHereGoesToAWorkerThatPulls(t *testing.T) {
	has := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} }
	hasN := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"n"} }
	loads := func(h *bus.WorkerHeartbeat) { h.LoadingModels = []string{"m"} }
	here := []string{"w"}
	for name, c := range map[string]struct {
		change func(*bus.WorkerHeartbeat) // of the other worker
		diedOn []string
		gives  bool
	}{
		"it has the model":     {has, here, true},
		"it loads the model":   {loads, here, false},
		"it is cold":           {func(*bus.WorkerHeartbeat) {}, here, false},
		"it is not ready":      {func(h *bus.WorkerHeartbeat) { has(h); h.Ready = false }, here, false},
		"it has another model": {hasN, here, false},
		"of another lane":      {func(h *bus.WorkerHeartbeat) { has(h); h.Bundle = "x" }, here, false},
		"it died with it too":  {has, []string{"w", "other"}, false},
		"another died with it": {has, []string{"third"}, false},
	} {
		s := newSim(t, 1)
		s.peer("other", c.change)
		it := &work.Item{WorkItemID: "r.0", ModelID: "m", DiedOn: c.diedOn}
		if got := s.c.preferOther(it); got != c.gives {
			t.Errorf("%s: given back: %v", name, got)
		}
	}
}

// A slice is given back maxGiveBacks times, then it runs here; how often other slices were given
// back is not forgotten by that.
func TestASliceIsGivenBackAFewTimes(t *testing.T) {
	s := newSim(t, 1)
	s.peer("other", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} })
	times := map[string]int{}
	waiting := []string{"a.0", "b.0", "c.0", "d.0"}
	for len(waiting) > 0 {
		var left []string
		for _, id := range waiting {
			if s.c.preferOther(&work.Item{WorkItemID: id, ModelID: "m", DiedOn: []string{"w"}}) {
				times[id]++
				left = append(left, id)
			}
		}
		waiting = left
	}
	for id, n := range times {
		if n != maxGiveBacks {
			t.Errorf("%s was given back %d times, want %d", id, n, maxGiveBacks)
		}
	}
	if len(s.c.giveBacks) != 0 {
		t.Errorf("%d counts are left", len(s.c.giveBacks))
	}
}

// Counts of slices that another worker has taken do not pile up.
func TestGiveBacksAreBounded(t *testing.T) {
	s := newSim(t, 1)
	s.peer("other", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"m"} })
	for i := range 3 * maxInHand {
		s.c.preferOther(&work.Item{WorkItemID: string(rune('A' + i)), ModelID: "m", DiedOn: []string{"w"}})
		if n := len(s.c.giveBacks); n > maxInHand {
			t.Fatalf("%d counts are held", n)
		}
	}
}
