package rank

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

var lane = bus.Lane{Pool: "p", Profile: "cpu", Bundle: "b"}

// fleet is a plain model of the workers of a lane, each with its own table.
type fleet struct {
	r       *rand.Rand
	now     time.Time
	workers map[string]*member
}

type member struct {
	table *Table
	h     bus.WorkerHeartbeat
}

func newFleet(seed uint64, n int) *fleet {
	f := &fleet{r: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1000, 0), workers: map[string]*member{}}
	for i := range n {
		f.add(fmt.Sprintf("w%d", i))
	}
	return f
}

func (f *fleet) add(name string) {
	f.workers[name] = &member{table: New(lane, name), h: bus.WorkerHeartbeat{
		Name: name, Ready: true, PoolName: lane.Pool, MachineProfile: lane.Profile, Bundle: lane.Bundle,
	}}
}

func (f *fleet) names() (all []string) {
	for name := range f.workers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// tell brings every heartbeat to every worker.
func (f *fleet) tell() {
	for _, from := range f.workers {
		for _, to := range f.workers {
			to.table.Heartbeat(f.now, &from.h)
		}
	}
}

func (f *fleet) own(m *member, model string) Own {
	return Own{
		Ready: m.h.Ready, Loaded: slices.Contains(m.h.LoadedModels, model),
		Loading: slices.Contains(m.h.LoadingModels, model), Failed: slices.Contains(m.h.FailedModels, model),
		Unsupported: slices.Contains(m.h.UnsupportedModels, model),
	}
}

// decisions returns who does what about a model.
func (f *fleet) decisions(model string) map[Action][]string {
	out := map[Action][]string{}
	for _, name := range f.names() {
		m := f.workers[name]
		a, _ := m.table.Decide(model, f.own(m, model))
		out[a] = append(out[a], name)
	}
	return out
}

// In every state of a lane that all its workers know: every worker that has the model pulls; if
// none has, exactly one loads it, unless nobody may; exactly one watches for a backlog; when all
// loads failed exactly one answers. Nobody who is not ready does anything.
func TestDecisions(t *testing.T) {
	seen := map[Action]int{}
	for seed := range uint64(3000) {
		f := newFleet(seed, 1+int(seed%6))
		ready, able, loaded, loading, failed := 0, 0, 0, 0, 0
		for _, m := range f.workers {
			m.h.Ready = f.r.IntN(5) > 0
			switch f.r.IntN(8) {
			case 0, 1:
				m.h.LoadedModels = []string{"m"}
			case 2:
				m.h.LoadingModels = []string{"m"}
			case 3, 4:
				m.h.FailedModels = []string{"m"}
			case 5:
				m.h.UnsupportedModels = []string{"m"}
			}
			if !m.h.Ready {
				continue
			}
			ready++
			switch {
			case len(m.h.LoadedModels) > 0:
				loaded++
			case len(m.h.LoadingModels) > 0:
				loading++
			case len(m.h.FailedModels) > 0:
				failed++
			case len(m.h.UnsupportedModels) == 0:
				able++
			}
		}
		f.tell()
		got := f.decisions("m")
		want := map[Action]int{Pull: loaded, Load: loading}
		switch {
		case loaded > 0 && loading == 0 && able > 0:
			want[Watch] = 1
		case loaded == 0 && loading == 0 && able > 0:
			want[Load] = 1
		case loaded == 0 && loading == 0 && failed > 0:
			want[Answer] = 1
		}
		for _, a := range []Action{Pull, Load, Watch, Answer} {
			seen[a] += len(got[a])
			if len(got[a]) != want[a] {
				t.Fatalf("seed %d: %d of %d ready workers: %v, want %v",
					seed, ready, len(f.workers), got, want)
			}
		}
		for a, names := range got {
			for _, name := range names {
				if a != Nothing && !f.workers[name].h.Ready {
					t.Fatalf("seed %d: %s does %v and is not ready", seed, name, a)
				}
			}
		}
	}
	for _, a := range []Action{Pull, Load, Watch, Answer} {
		if seen[a] < 100 {
			t.Errorf("action %v was seen %d times", a, seen[a])
		}
	}
}

// A worker that leaves moves its own models only, and models spread over the workers.
func TestWhoLeavesMovesItsModels(t *testing.T) {
	f := newFleet(1, 4)
	f.tell()
	first := map[string]string{}
	load := map[string]int{}
	for i := range 400 {
		model := fmt.Sprintf("m%d", i)
		d := f.decisions(model)
		if len(d[Load]) != 1 {
			t.Fatalf("%s: %v", model, d)
		}
		first[model] = d[Load][0]
		load[d[Load][0]]++
	}
	for name, n := range load {
		if n < 60 || n > 140 {
			t.Errorf("%s loads %d of 400 models", name, n)
		}
	}
	f.workers["w2"].h.Terminated = true
	f.tell()
	delete(f.workers, "w2")
	for model, before := range first {
		if now := f.decisions(model)[Load]; before != "w2" && now[0] != before {
			t.Errorf("%s moved from %s to %v", model, before, now)
		}
	}
}

// Ages, against a plain model: a worker without heartbeats is gone, unless oneself was not
// connected, and another lane's or too many workers are never there.
func TestAges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	now, table := time.Unix(1000, 0), New(lane, "self")
	seen := map[string]time.Time{}
	for range 5000 {
		now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
		name := fmt.Sprintf("w%d", r.IntN(10))
		h := bus.WorkerHeartbeat{Name: name, Ready: true, PoolName: "p", MachineProfile: "cpu", Bundle: "b"}
		switch r.IntN(6) {
		case 0, 1:
			table.Heartbeat(now, &h)
			seen[name] = now
		case 2:
			h.Terminated = true
			table.Heartbeat(now, &h)
			delete(seen, name)
		case 3:
			table.Expire(now)
			for name, at := range seen {
				if now.Sub(at) > work.WorkerStale {
					delete(seen, name)
				}
			}
		case 4:
			if r.IntN(10) == 0 {
				table.Reconnected(now)
				for name := range seen {
					seen[name] = now
				}
			}
		case 5:
			h.Bundle = "other"
			h.Name = "foreign"
			table.Heartbeat(now, &h)
			h.Bundle, h.Name = "b", "self"
			table.Heartbeat(now, &h)
		}
		if table.Len() != len(seen) {
			t.Fatalf("%d workers are live, want %d", table.Len(), len(seen))
		}
	}
	for i := range 2 * MaxWorkers {
		h := bus.WorkerHeartbeat{Name: fmt.Sprint(i), PoolName: "p", MachineProfile: "cpu", Bundle: "b"}
		table.Heartbeat(now, &h)
	}
	if table.Len() > MaxWorkers {
		t.Errorf("%d workers are held", table.Len())
	}
}

// A heartbeat that says nothing new changes no decision, and one that does is told.
func TestChangesAreTold(t *testing.T) {
	table, now := New(lane, "self"), time.Unix(1000, 0)
	h := bus.WorkerHeartbeat{Name: "w", Ready: true, PoolName: "p", MachineProfile: "cpu", Bundle: "b"}
	for i, c := range []struct {
		change  func()
		changed bool
	}{
		{func() {}, true},
		{func() { h.QueueDepth = 5 }, false},
		{func() { h.LoadedModels = []string{"m"} }, true},
		{func() { h.LoadedModels = []string{"n"} }, true},
		{func() { h.LoadingModels = []string{"m"} }, true},
		{func() { h.FailedModels = []string{"m"} }, true},
		{func() { h.UnsupportedModels = []string{"m"} }, true},
		{func() { h.Ready = false }, true},
		{func() { h.Sequence++ }, false},
		{func() { h.Terminated = true }, true},
		{func() {}, false},
	} {
		c.change()
		if got := table.Heartbeat(now, &h); got != c.changed {
			t.Errorf("change %d: told %v", i, got)
		}
	}
	h.Terminated, h.Ready, h.LoadedModels = false, true, []string{"m"}
	table.Heartbeat(now, &h)
	if !table.Other("m", nil) || table.Other("m", []string{"w"}) || table.Other("x", nil) {
		t.Error("Other is wrong about who has the model")
	}
	for _, c := range []struct {
		change func()
		able   bool
	}{
		{func() {}, false}, // it is in failed_models and unsupported_models
		{func() { h.FailedModels = nil }, false},
		{func() { h.UnsupportedModels = nil }, true},
		{func() { h.Ready = false }, false},
	} {
		c.change()
		if table.Heartbeat(now, &h); table.Able("m") != c.able {
			t.Errorf("%+v: able %v", h, !c.able)
		}
	}
}

// A worker that serves another lane now is none of this one, at once.
func TestWhoServesAnotherLaneIsGone(t *testing.T) {
	table := New(lane, "self")
	h := bus.WorkerHeartbeat{Name: "w", Ready: true, PoolName: "p", MachineProfile: "cpu", Bundle: "b",
		LoadedModels: []string{"m"}}
	table.Heartbeat(time.Unix(1, 0), &h)
	h.PoolName = "mine"
	if !table.Heartbeat(time.Unix(1, 0), &h) || table.Len() != 0 || table.Other("m", nil) {
		t.Error("it is still in the lane")
	}
}

// The threshold of a watch is four windows of the worker that has the model, within its bounds.
func TestThreshold(t *testing.T) {
	for window, want := range map[int]int{0: minThreshold, 1: minThreshold, 5: 20, 100_000: maxThreshold} {
		table := New(lane, "self")
		table.Heartbeat(time.Unix(1, 0), &bus.WorkerHeartbeat{
			Name: "w", Ready: true, PoolName: "p", MachineProfile: "cpu", Bundle: "b",
			LoadedModels: []string{"m"}, Pending: map[string]bus.Pending{"m": {Window: window}},
		})
		if a, n := table.Decide("m", Own{Ready: true}); a != Watch || n != want {
			t.Errorf("window %d: %v at %d, want %d", window, a, n, want)
		}
	}
}
