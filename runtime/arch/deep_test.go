package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// deepCases are nets of 36 blocks that normalise first, with weights that bf16 holds exactly, and
// the row that models of their kind read of each text.
var deepCases = map[string]engine.Pooling{
	"modernbert-deep": engine.PoolCLS, "qwen3-deep": engine.PoolLast,
}

// deepBound says how far the last hidden state of a deep net may be from transformers' float32, as
// a share of the largest value. On a GPU it is at most 0.0031 in bf16 and 0.00041 in f16. With the
// sum that blocks add to in the type of the class, it was at least 0.028 and 0.0026.
func deepBound(compute engine.Compute) float64 {
	switch compute {
	case engine.ComputeF32:
		return 1e-5
	case engine.ComputeF16:
		return 0.001
	case engine.ComputeBF16:
		return 0.008
	case engine.ComputeINT8:
		return 0.02
	}
	return 0.1
}

func checkDeep(t *testing.T, dev *engine.Device, compute engine.Compute) {
	t.Helper()
	for name := range deepCases {
		c := golden.Open(t, name)
		want, _ := c.Float32("final")
		m, r := loadStates(t, dev, c.Dir, compute)
		program := record(t, m, Want{Give: Give(outStates)})
		got := values(t, r, engine.Batch{Program: program}, goldenBatch(c), 0, len(want))
		d, largest := golden.Compare(got, want), c.Notes["max_abs_value"].(float64)
		t.Logf("%s: %v: %.3g of the largest value", name, d, d.MaxAbs/largest)
		if d.MaxAbs > deepBound(compute)*largest {
			t.Errorf("%s: %v; %.3g is the largest value", name, d, largest)
		}
	}
}

func TestDeepNets(t *testing.T) { onEach(t, checkDeep) }
