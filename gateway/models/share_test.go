package models_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/bus"
)

// sharing returns a registry in which a canary shares the lane default/l4/default.
func sharing(t *testing.T) (models.Model, *fleet.Fleet) {
	t.Helper()
	f := fleet.New(slog.New(slog.DiscardHandler))
	f.Connected()
	r := models.New(models.Options{Fleet: f,
		Lanes: []bus.Lane{
			laneOf("default/l4/default"), laneOf("other/l4/default"), laneOf("canary/l4/default"),
			laneOf("canary/a100/default"),
		},
		Weights: map[bus.Lane]uint64{
			laneOf("default/l4/default"): 90, laneOf("canary/l4/default"): 10,
			laneOf("canary/a100/default"): 50,
		}})
	c, b := load(t, files...)
	r.Set(c, b, models.Version{Epoch: 7})
	m, err := r.Find("org/both")
	if err != nil {
		t.Fatal(err)
	}
	return m, f
}

// A request id always gets the same of the lanes with a weight, each as often as its weight says;
// the lane of another machine profile, and one without a weight, get none of it.
func TestLanesShareByWeight(t *testing.T) {
	m, f := sharing(t)
	for i, lane := range []string{
		"default/l4/default", "other/l4/default", "canary/l4/default", "canary/a100/default",
	} {
		worker(t, f, fmt.Sprint("w", i), lane, nil)
	}
	first, err := m.Route("l4", "")
	if err != nil || first.Lane != laneOf("default/l4/default") {
		t.Fatalf("%+v %v", first, err)
	}
	const n = 20_000
	count := map[string]int{}
	for i := range n {
		id := fmt.Sprint("request-", i)
		got := m.Share(first, id)
		if again := m.Share(first, id); again != got {
			t.Fatalf("%s: %v, then %v", id, got.Lane, again.Lane)
		}
		count[got.Lane.String()]++
	}
	if c := count["canary/l4/default"]; len(count) != 2 || c < n*9/100 || c > n*11/100 {
		t.Errorf("%v of %d, want a tenth at the canary", count, n)
	}
	other, err := m.Route("l4", "other")
	if err != nil || m.Share(other, "x") != other {
		t.Errorf("a lane without a weight: %+v %v", other, err)
	}
}

// A canary gets its share while a worker of it is ready and may run the model, and at no other
// time: what would be its share goes to the lane that the request came for, whether that has a
// worker or not.
func TestACanaryWithoutAWorkerGetsNoShare(t *testing.T) {
	m, f := sharing(t)
	first, err := m.Route("", "")
	if err != nil || first.Lane != laneOf("default/l4/default") {
		t.Fatalf("%+v %v", first, err)
	}
	canary := func(change func(*bus.WorkerHeartbeat)) { worker(t, f, "w1", "canary/l4/default", change) }
	ended := func(h *bus.WorkerHeartbeat) { h.Ready, h.Terminated = false, true }
	has := func(when string, share bool) {
		t.Helper()
		count := map[string]int{}
		for i := range 500 {
			count[m.Share(first, fmt.Sprint(i)).Lane.String()]++
		}
		got := count["canary/l4/default"]
		if got+count["default/l4/default"] != 500 || share && (got < 30 || got > 80) || !share && got > 0 {
			t.Errorf("%s: %v", when, count)
		}
	}
	has("without any worker", false)
	worker(t, f, "w0", "default/l4/default", nil)
	has("with a worker of the other lane alone", false)
	canary(func(h *bus.WorkerHeartbeat) { h.Ready = false })
	has("while the canary loads", false)
	canary(nil)
	has("when it is ready", true)
	canary(func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = []string{"org/both"} })
	has("when it cannot run the model", false)
	canary(func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = []string{"org/another"} })
	has("when it cannot run another model", true)
	canary(ended)
	has("when it has ended", false)
	canary(nil)
	worker(t, f, "w0", "default/l4/default", ended)
	has("when the canary alone has a worker", true) // and no more than its share
}
