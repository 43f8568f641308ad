package demand

import (
	"encoding/json"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/bus"
)

var (
	first  = bus.Lane{Pool: "default", Profile: "l4", Bundle: "default"}
	second = bus.Lane{Pool: "default", Profile: "h100", Bundle: "default"}
	leased = bus.Lane{Pool: "mine", Profile: "l4", Bundle: "default"}
)

// asked is pools that ask for something. The pool mine has the workers of first.
type asked map[bus.Lane]pools.Leases

func (a asked) Home(l bus.Lane) bus.Lane {
	if l == leased {
		return first
	}
	return l
}
func (a asked) Leases() map[bus.Lane]pools.Leases { return a }

func tracker(router string, f *fleet.Fleet, a asked) *Tracker {
	return New(Options{Router: router, Lanes: []bus.Lane{first, second}, Fleet: f.Snapshot, Pools: a,
		Metrics: prometheus.NewRegistry()})
}

// A demand is of a lane that has workers of its own, is told to other gateways and by them to
// nobody, outlives the gateway that saw it, and ends with a ready worker or its time.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(slog.New(slog.DiscardHandler))
		f.Connected()
		ask := asked{}
		a, b := tracker("a", f, ask), tracker("b", f, ask)
		says := func(x *Tracker, want map[bus.Lane]int) {
			t.Helper()
			if got := x.Lanes(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		none := map[bus.Lane]int{first: 0, second: 0}
		says(a, none)
		a.Note(leased)
		says(a, map[bus.Lane]int{first: 1, second: 0})
		says(b, none)
		told := a.Told()
		a.heard("a", told) // its own
		b.heard("a", told)
		says(b, map[bus.Lane]int{first: 1, second: 0})
		if len(told) != 1 || told[0].Lane != first || len(b.Told()) != 0 {
			t.Errorf("told %v and %v", told, b.Told())
		}
		ask[first] = pools.Leases{Workers: 2, Missing: 1}
		ask[second] = pools.Leases{Workers: 1}
		says(b, map[bus.Lane]int{first: 3, second: 0})
		ask[second] = pools.Leases{Workers: 2, Missing: 2}
		says(b, map[bus.Lane]int{first: 3, second: 2})
		clear(ask)

		time.Sleep(100 * time.Second)
		b.heard("a", a.Told())
		time.Sleep(19 * time.Second)
		says(b, map[bus.Lane]int{first: 1, second: 0})
		time.Sleep(2 * time.Second) // what is told lasts no longer than what was noted
		says(a, none)
		says(b, none)

		a.Note(first)
		a.Note(second)
		b.heard("a", a.Told())
		beat(t, f, "w", first, false)
		says(b, map[bus.Lane]int{first: 1, second: 1})
		beat(t, f, "w", first, true)
		says(b, map[bus.Lane]int{first: 0, second: 1})
		beat(t, f, "w", first, false) // it was met, whatever comes later
		says(b, map[bus.Lane]int{first: 0, second: 1})
		says(a, map[bus.Lane]int{first: 1, second: 1})
		b.heard("x", []bus.LaneDemand{{Lane: bus.Lane{Pool: "a.b"}, LeftMS: 1000}, {Lane: first, LeftMS: -1},
			{Lane: first, LeftMS: 1 << 62}})
		says(b, map[bus.Lane]int{first: 1, second: 1})
		time.Sleep(lasts + time.Second)
		says(b, none)
	})
}

func beat(t *testing.T, f *fleet.Fleet, id string, l bus.Lane, ready bool) {
	t.Helper()
	data, err := json.Marshal(bus.WorkerHeartbeat{Name: id, Ready: ready, PoolName: l.Pool,
		MachineProfile: l.Profile, Bundle: l.Bundle})
	if err != nil {
		t.Fatal(err)
	}
	f.Heartbeat(bus.HealthPrefix+id, data)
}

// The queues of clients' pools are no lane's, and a depth that is too old is not told any more.
func TestOldDepths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := tracker("a", fleet.New(slog.New(slog.DiscardHandler)), asked{})
		if x.Depths() != nil {
			t.Error("a depth that nobody read")
		}
		x.depths = depths{map[bus.Lane]int64{leased: 5, first: 2}, time.Now()}
		if got := x.Depths(); !maps.Equal(got, map[bus.Lane]int64{first: 2, second: 0}) {
			t.Errorf("%v", got)
		}
		f := fleet.New(slog.New(slog.DiscardHandler))
		free := New(Options{Fleet: f.Snapshot, Pools: asked{}})
		free.depths = x.depths
		if got := free.Depths(); len(got) > 0 {
			t.Errorf("without lanes and workers: %v", got)
		}
		beat(t, f, "w", first, true)
		if got := free.Depths(); !maps.Equal(got, map[bus.Lane]int64{first: 2}) {
			t.Errorf("without configured lanes: %v", got)
		}
		time.Sleep(depthLasts + time.Second)
		if x.Depths() != nil {
			t.Error("an old depth")
		}
	})
}
