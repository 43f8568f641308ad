package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// TestPlacement: where weights lie by nodes, free memory, budget and what the operator says. A
// model of 100 bytes, 80 of them linear, takes 340 on four nodes.
func TestPlacement(t *testing.T) {
	r := start(t, func(o *Options) { o.MemoryThreshold = 0.5 }, []string{mean})
	size := arch.Size{Packed: 100, Linear: 80}
	for _, c := range []struct {
		asked        string
		nodes        int
		used, budget int64
		want         engine.Placement
	}{
		{"", 1, 0, 0, engine.Interleaved},
		{"copy", 1, 0, 0, engine.Interleaved},
		{"", 4, 0, 0, engine.Copied},
		{Auto, 4, 320, 0, engine.Copied},
		{Auto, 4, 321, 0, engine.Interleaved},
		{Auto, 4, 0, 680, engine.Copied},
		{Auto, 4, 0, 679, engine.Interleaved},
		{Auto, 2, 0, 679, engine.Copied},
		{"copy", 4, 2000, 10, engine.Copied},
		{"interleave", 4, 0, 0, engine.Interleaved},
	} {
		r.devices[0].about.NodesUsed = c.nodes
		r.opt.Placement, r.opt.MemoryBudget = c.asked, c.budget
		r.memory = func() memory { return memory{used: c.used, total: 2000} }
		if got := r.placement(size); got != c.want {
			t.Errorf("%q on %d nodes, %d used, budget %d: %v", c.asked, c.nodes, c.used, c.budget, got)
		}
	}
	r.devices[0].about.NodesUsed = 1
}

// TestCopiesCount: a load needs room for every copy. Where the budget has room for the weights
// once, but not on each of eight nodes, the model is refused if it must be copied; else its pages
// lie on the nodes in turn.
func TestCopiesCount(t *testing.T) {
	const nodes, budget = 8, int64(8) << 30
	dir := large(t, "Qwen/Qwen3-Embedding-0.6B")
	r := start(t, func(o *Options) { o.MemoryBudget, o.Placement = budget, "copy" }, []string{mean},
		adHoc(t, "large", dir))
	r.memory = func() memory { return memory{total: 1 << 40} }
	o := arch.Options{Task: arch.Embed, Compute: engine.ComputeF32}
	size, err := arch.SizeOf(dir, r.devices[0].engine, o)
	if err != nil || size.Linear < size.Packed/2 || size.Linear >= size.Packed {
		t.Fatalf("%d of %d bytes are linear: %v", size.Linear, size.Packed, err)
	}
	r.devices[0].about.NodesUsed = nodes
	e := r.refused(t.Context(), &Request{Model: "large", Texts: words(1)}, errs.ModelLoadFailed, 502)
	need := fmt.Sprintf("%d MiB", mib(size.Packed+7*size.Linear))
	for _, part := range []string{need, "--memory-budget"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q does not say %s", e.Message, part)
		}
	}
	r.opt.Placement = Auto
	if got := r.placement(size); got != engine.Interleaved {
		t.Errorf("%v within a budget for three copies", got)
	}
	r.opt.MemoryBudget = 2 * size.On(nodes, engine.Copied)
	if got := r.placement(size); got != engine.Copied {
		t.Errorf("%v within a budget for twice all copies", got)
	}
	r.devices[0].about.NodesUsed = 1
}

// TestPlacementNames: the options accept what --numa offers, and nothing else.
func TestPlacementNames(t *testing.T) {
	for name, good := range map[string]bool{"": true, "auto": true, "copy": true, "interleave": true,
		"off": false, "Copy": false} {
		o := Options{Placement: name}
		if err := o.checkPlacement(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
