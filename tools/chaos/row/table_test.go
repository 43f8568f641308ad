package row

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Every kind of process is hurt in each of the four ways, each broker on each topology, and rows of
// one topology follow each other, because each topology's cluster is started once.
func TestTheTableIsWhole(t *testing.T) {
	names := map[string]bool{}
	var topologies []string
	for _, r := range Table() {
		name := r.Topology + ":" + r.Name
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		if (r.Fault == nil) == (r.Alone == nil) {
			t.Errorf("%s has neither a fault nor a way of its own, or both", name)
		}
		if r.Alone == nil && r.Demand.FullRate == 0 {
			t.Errorf("%s does not demand the full rate", name)
		}
		if len(topologies) == 0 || topologies[len(topologies)-1] != r.Topology {
			if slices.Contains(topologies, r.Topology) {
				t.Errorf("%s: its topology is started twice", name)
			}
			topologies = append(topologies, r.Topology)
		}
	}
	for _, where := range []string{
		R1 + ":server", R1 + ":config", R1 + ":sidecar", R1 + ":gateway", R1 + ":nats", R3 + ":node",
		R3 + ":all-nodes",
		R3File + ":node", R3File + ":all-nodes",
	} {
		for _, how := range []string{"kill9", "stop", "term", "restart3"} {
			if !names[where+"/"+how] {
				t.Errorf("there is no row %s/%s", where, how)
			}
		}
	}
	for _, name := range []string{
		R1 + ":poison", R1 + ":stream/full", R1 + ":stream/lost", R3 + ":stream/lost", Ahead + ":clock",
		After + ":clock", Behind + ":partition/all", Behind + ":network/slow", R3 + ":partition/sidecars",
		R3File + ":disk/full-one", R3File + ":disk/full-all", R3Disk + ":disk/slow",
		R1 + ":pools/lost", R1 + ":scale/zero", Behind + ":partition/config", Auto + ":scale/auto",
		Four + ":isolation/queued", Four + ":isolation/placement", Four + ":isolation/overload",
	} {
		if !names[name] {
			t.Errorf("there is no row %s", name)
		}
	}
}

// What drains leaves nobody without an answer, and one worker's death delays none beyond 30 s.
func TestWhatRowsDemand(t *testing.T) {
	for _, r := range Table() {
		kind, how, _ := strings.Cut(r.Name, "/")
		worker := kind == "server" || kind == "sidecar"
		if worker && r.Demand.Longest != 30*time.Second {
			t.Errorf("%s allows a wait of %v", r.Name, r.Demand.Longest)
		}
		if how == "term" && (worker || kind == "gateway" || kind == "config") != r.Demand.Only200 {
			t.Errorf("%s: only 200 is %v", r.Name, r.Demand.Only200)
		}
		resets := kind == "gateway" && (how == "kill9" || how == "restart3")
		if (len(r.Demand.Resets) > 0) != resets {
			t.Errorf("%s allows resets of %v", r.Name, r.Demand.Resets)
		}
		if r.Demand.FullRate > 5*time.Second {
			t.Errorf("%s allows %v to the full rate", r.Name, r.Demand.FullRate)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		name     string
		patterns []string
		short    bool
		want     int // at least
		err      string
	}{
		{"all", nil, false, 45, ""},
		{"short", nil, true, 10, ""},
		{"one", []string{"server/kill9"}, false, 1, ""},
		{"of a topology", []string{"r3-memory:*/*"}, false, 12, ""},
		{"two", []string{"poison", "nats/*"}, true, 5, ""},
		{"none", []string{"poison", "no/such"}, false, 0, `"no/such"`},
		{"malformed", []string{"["}, false, 0, "pattern"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, err := Select(Table(), c.patterns, c.short)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if len(rows) < c.want || c.want == 1 && len(rows) != 1 || len(c.patterns) > 0 &&
				len(rows) > 20 {
				t.Errorf("%d rows, want %d", len(rows), c.want)
			}
		})
	}
}

// A profile of a model that is loaded is no other model.
func TestProfilesAreNoLoads(t *testing.T) {
	got := bases([]string{"a/b", "a/b:candle", "c:x", "c:y", "d"})
	if want := []string{"a/b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
