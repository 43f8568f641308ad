package pools

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
)

// However a pool asks for its workers, it needs no more than one pool may have.
func TestAPoolNeedsNoMoreThanItMayHave(t *testing.T) {
	known := func(id string) (string, bool) { return id, true }
	for _, c := range []struct {
		spec lease.Spec
		want string // "": it is accepted
	}{
		{lease.Spec{GPUs: map[string]int{"a": 1, "b": 1}, Minimum: math.MaxInt/2 + 1},
			"minimum_worker_count is"},
		{lease.Spec{GPUs: map[string]int{"a": 1, "b": 1}, Minimum: math.MaxInt}, "minimum_worker_count is"},
		{lease.Spec{GPUs: map[string]int{"a": 4, "b": 0}, Minimum: 2},
			"ask for 6 workers; a pool has at most 4"},
		{lease.Spec{GPUs: map[string]int{"a": 3, "b": 0}, Minimum: 1}, ""},
		{lease.Spec{GPUs: map[string]int{"a": 3}, Caps: map[string]int{"b": 0}, Minimum: 2}, ""},
	} {
		s := c.spec
		s.Name = "mine"
		e := check(&s, Limits{Pools: 1, TTL: 60, Workers: 4}, nil, known)
		if c.want == "" && e != nil || c.want != "" && (e == nil || !strings.Contains(e.Message, c.want)) {
			t.Errorf("%+v: %v, want %q", c.spec, e, c.want)
		}
	}
}

// Pools never fill the document of all pools, or nothing could be written to it any more: neither
// that a pool lives on, nor who serves it.
func TestPoolsLeaveRoomInTheirDocument(t *testing.T) {
	table := &lease.Table{}
	pinned := make([]string, maxPinned)
	for i := range pinned {
		pinned[i] = strings.Repeat("m", 256)
	}
	var refused *errs.Error
	for i := range 64 {
		s := lease.Spec{Name: fmt.Sprint("p", i), GPUs: map[string]int{"a": 1}, Pinned: pinned}
		if _, refused = put(table, s, Limits{Pools: 64}); refused != nil {
			break
		}
	}
	if refused == nil || refused.Status != 403 || len(table.Pools) < 20 {
		t.Fatalf("%v with %d pools", refused, len(table.Pools))
	}
	written, err := json.Marshal(table)
	if err != nil || len(written) > 1<<19 {
		t.Errorf("the pools take %d bytes (%v)", len(written), err)
	}
}
