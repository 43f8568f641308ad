package pools

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/lease"
)

// Who gets which worker: the oldest pools first, each its own before idle ones, and what others
// have beyond their needs last. Pools are name:need[-cap]=had; workers have the profile l4.
func TestAssign(t *testing.T) {
	for name, c := range map[string]struct{ pools, workers, want string }{
		"idle workers":                 {"a:2 b:1", "1 2 3 4", "a=1,2 b=3"},
		"too few":                      {"a:2 b:2", "1 2 3", "a=1,2 b=3"},
		"each keeps its own":           {"a:1=2 b:1=1", "1 2", "a=2 b=1"},
		"none is taken that is needed": {"a:2=2 b:1=1", "1 2", "a=2 b=1"},
		"who is gone is replaced":      {"a:2=1,9 b:1=2", "1 2 3", "a=1,3 b=2"},
		"too many go":                  {"a:1=1,2,3", "1 2 3", "a=1"},
		"a cap takes what is idle":     {"a:0-2", "1 2 3", "a=1,2"},
		"at most four by caps":         {"a:1-9", "1 2 3 4 5 6", "a=1,2,3,4"},
		"needs before caps":            {"a:0-3 b:2", "1 2 3", "a=3 b=1,2"},
		"what is spare is given up":    {"a:0-3=1,2,3 b:2", "1 2 3", "a=3 b=1,2"},
		"who is not ready stays":       {"a:1=1!", "1!", "a=1"},
		"who is not ready is not new":  {"a:1", "1! 2", "a=2"},
	} {
		table := &lease.Table{}
		for _, text := range strings.Fields(c.pools) {
			head, had, _ := strings.Cut(text, "=")
			id, counts, _ := strings.Cut(head, ":")
			need, most, capped := strings.Cut(counts, "-")
			s := lease.Spec{Name: id, QueuePool: "default", GPUs: map[string]int{"l4": int(need[0] - '0')}}
			if capped {
				s.Caps = map[string]int{"l4": int(most[0] - '0')}
			}
			p := &lease.Pool{Spec: s}
			for w := range strings.SplitSeq(had, ",") {
				if w != "" {
					p.Assigned = append(p.Assigned,
						lease.Worker{ID: strings.TrimSuffix(w, "!"), Profile: "l4", Bundle: "default"})
				}
			}
			table.Pools = append(table.Pools, p)
		}
		var live []candidate
		for w := range strings.FieldsSeq(c.workers) {
			live = append(live,
				candidate{strings.TrimSuffix(w, "!"), testLanes[0], !strings.HasSuffix(w, "!")})
		}
		assign(table, live, testLimits.Workers)
		var got []string
		for _, p := range table.Pools {
			var ids []string
			for _, w := range p.Assigned {
				ids = append(ids, w.ID)
			}
			got = append(got, p.Spec.Name+"="+strings.Join(ids, ","))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
		if assign(table, live, testLimits.Workers) {
			t.Errorf("%s: a second look changes something", name)
		}
	}
}
