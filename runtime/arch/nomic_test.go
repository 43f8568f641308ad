package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Texts of 2,048 to 8,192 tokens of a model that was trained with 2,048: each turns by its own
// length, in one batch with the others.
func TestNomicLongTexts(t *testing.T) {
	dev := open(t, engine.Options{})
	for _, name := range longPostNorms {
		c := golden.Open(t, name)
		m, r := loadStates(t, dev, c.Dir, engine.ComputeF32)
		if err := compareStates(t, m, r, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
