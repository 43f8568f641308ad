package arch

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Blocks are packed once however often they run: the memory is that of the checkpoint's tensors for
// any number of layers.
func TestSharedBlocksArePackedOnce(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	dir := golden.Open(t, "albert-h64").Dir
	few, _ := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
	many, _ := load(t, dev, edit(t, dir, configFile, map[string]any{"num_hidden_layers": 100}),
		Options{Task: Embed, Compute: engine.ComputeF32})
	if few.Bytes() != many.Bytes() || few.Layers != 4 || many.Layers != 100 {
		t.Errorf("%d layers take %d bytes, %d take %d", few.Layers, few.Bytes(), many.Layers, many.Bytes())
	}
	if a, b := few.Cost(), many.Cost(); b.PerToken != 25*a.PerToken || b.PerPair != 25*a.PerPair {
		t.Errorf("4 layers are work of %g and %g, 100 of %g and %g",
			a.PerToken, a.PerPair, b.PerToken, b.PerPair)
	}
	// 4 layers of 2 blocks, in heads of the same width
	inner, _ := load(t, dev, golden.Open(t, "albert-groups").Dir, Options{Task: Embed})
	if perToken := inner.Cost().PerToken; inner.Layers != 8 || perToken != 8*2*64*(4*64+2*70) {
		t.Errorf("%d steps are work of %g a token", inner.Layers, perToken)
	}
	size, err := SizeOf(dir, dev, Options{Task: Embed, Compute: engine.ComputeF32})
	estimate := size.Packed
	if have := many.Bytes(); err != nil || have < estimate*9/10 || have > estimate*13/10 {
		t.Errorf("estimated as %d bytes, packed in %d (%v)", estimate, have, err)
	}
}

// Layers are divided into groups as in transformers, with its rounding where they do not divide
// evenly.
func TestLayersOfAGroup(t *testing.T) {
	for _, c := range []struct {
		layers, groups, inner int64
		steps                 []int
	}{
		{4, 1, 1, []int{0, 0, 0, 0}},
		{4, 2, 1, []int{0, 0, 1, 1}},
		{5, 3, 1, []int{0, 0, 1, 1, 2}},
		{3, 3, 2, []int{0, 1, 2, 3, 4, 5}},
		{3, 1, 2, []int{0, 1, 0, 1, 0, 1}},
		// Layer 9 of 18 in 14 groups: 9/(18/14) is 7 exactly, and 6.999999999999999 in the float64
		// that transformers divides in.
		{18, 14, 1, []int{0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 10, 10, 11, 12, 13}},
	} {
		if got := (albertGroups{c.groups, c.inner}).steps(c.layers); !slices.Equal(got, c.steps) {
			t.Errorf("%d layers in %d groups of %d: %v, want %v", c.layers, c.groups, c.inner, got, c.steps)
		}
	}
}
