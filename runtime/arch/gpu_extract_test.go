//go:build native && cuda

package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// inTurn runs f with each card and one of its classes, which are all among those of three cards.
func inTurn(t *testing.T, f func(t *testing.T, dev *engine.Device, compute engine.Compute, turn int)) {
	t.Helper()
	turn := 0
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		all := computes(t, dev)
		compute := all[turn%len(all)]
		t.Run(compute.String(), func(t *testing.T) { f(t, dev, compute, turn%3) })
		turn++
	})
}

// GLiNER models on GPUs: the states of tokens, words and labels, every logit, and the bits of a
// text alone and in company.
func TestGPUGLiNER(t *testing.T) {
	inTurn(t, func(t *testing.T, dev *engine.Device, compute engine.Compute, _ int) {
		for _, name := range glinerCases {
			c := golden.Open(t, name)
			t.Run(name, func(t *testing.T) {
				checkGLiNERStates(t, dev, c, compute)
				checkGLiNERLogits(t, dev, c, compute)
				checkGLiNERAlone(t, dev, c, compute)
			})
		}
		for _, name := range glinerBiCases { // whose label towers have heads of 16 and 24 columns
			_, err := Load(golden.Open(t, name).Dir, dev, Options{Task: Spans})
			refusedWith(t, err, name, "GPUs have no kernel for", "--device cpu")
		}
	})
}

// GLiClass models on GPUs: a variant's logits on one of the cards, or its refusal where they have
// no kernel for it.
func TestGPUGLiClass(t *testing.T) {
	inTurn(t, func(t *testing.T, dev *engine.Device, compute engine.Compute, turn int) {
		checkGLiClass(t, dev, compute, turn, 3)
		c := golden.Open(t, "gliclass-modern")
		for _, pooler := range []string{"sum", "rms", "abs_max", "abs_avg"} {
			dir := changedConfig(t, c.Dir, map[string]any{"pooling_strategy": pooler})
			_, err := Load(dir, dev, Options{Task: GLiClass})
			refusedWith(t, err, pooler, "config.json: pooling_strategy: is "+pooler, "--device cpu")
		}
		for _, name := range []string{"hopfield", "cross"} {
			_, err := Load(golden.Open(t, "gliclass-"+name).Dir, dev, Options{Task: GLiClass})
			refusedWith(t, err, name, "config.json: scorer_type: is "+name, "--device cpu")
		}
	})
}
