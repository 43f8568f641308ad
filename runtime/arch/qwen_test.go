package arch

import (
	"context"
	"fmt"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var qwenCases = []string{"qwen3-gqa-d64", "qwen3-mha-d128-yarn", "qwen3-bias-linear", "qwen3-both-ways",
	"qwen2-gqa-dynamic", "qwen2-mha-llama3", "qwen2-both-ways", "eurobert-gqa", "eurobert-biases"}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestQwenGoldensAttend(t *testing.T) {
	for _, name := range qwenCases {
		if s := golden.Open(t, name).Notes["attention_entropy"].(float64); s < 0.4 || s > 0.8 {
			t.Errorf("%s: attention has %v of the entropy of uniform rows", name, s)
		}
	}
}

// states returns the hidden states of a batch, from the embeddings to behind the final norm.
func states(t testing.TB, m *Model, r *engine.Runner, b packed, adapters ...*Adapter) [][]float32 {
	t.Helper()
	var out [][]float32
	for len(out) < m.Layers+2 {
		first := min(len(out), m.Layers) // the last program begins at the last block's state
		program, err := m.RecordHiddenStates(first, adapters...)
		if err != nil {
			t.Fatal(err)
		}
		run := engine.Batch{Program: program, IDs: b.ids, CuSeqlens: b.cu}
		for i := range program.Outputs() {
			run.OutBytes[i] = int64(len(b.ids) * m.HiddenSize() * 4)
		}
		if err := r.Run(context.Background(), &run); err != nil {
			t.Fatal(err)
		}
		for i := range program.Outputs() {
			if first+i == len(out) {
				out = append(out, floats(run.Out[i]))
			}
		}
		program.Close()
	}
	return out
}

// qwenBounds says how far a state may be from transformers' float32: the largest difference as a
// share of the largest value, the cosine over the state, and the norm.
func qwenBounds(compute engine.Compute) (share, cosine, norm float64) {
	switch compute {
	case engine.ComputeF32:
		return 1e-5, 0.9999999, 1e-5
	case engine.ComputeBF16, engine.ComputeF16:
		return 1, 0.999, 0.01
	case engine.ComputeFP8:
		return 1, 0.97, 0.05 // as other architectures' states
	}
	return 1, 0.99, 0.02
}

func TestQwenHiddenStates(t *testing.T) {
	for _, o := range append(isas, engine.Options{Kind: engine.Ref}) {
		t.Run(fmt.Sprintf("kind=%s/isa=%s", o.Kind, o.ISA), func(t *testing.T) {
			dev := open(t, o)
			for _, name := range qwenCases {
				c := golden.Open(t, name)
				for _, compute := range computes(t, dev) {
					if o.Kind == engine.Ref && compute != engine.ComputeF32 {
						continue // the reference kernels compute every class alike
					}
					t.Run(fmt.Sprintf("%s/%s", name, compute),
						func(t *testing.T) { checkQwenStates(t, dev, c, compute) })
				}
			}
		})
	}
}

func checkQwenStates(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: compute})
	got := states(t, m, r, goldenBatch(c))
	if len(got) != m.Layers+2 || c.Has(fmt.Sprintf("hidden_%d", len(got))) {
		t.Fatalf("%d states for %d layers", len(got), m.Layers)
	}
	share, cosine, norm := qwenBounds(compute)
	for i := range got {
		want, _ := c.Float32(fmt.Sprintf("hidden_%d", i))
		d, largest := golden.Compare(got[i], want), 0.0
		for _, x := range want {
			largest = max(largest, float64(x), float64(-x))
		}
		if d.MaxAbs > share*largest || d.Cosine < cosine || d.NormRatio < 1-norm || d.NormRatio > 1+norm {
			t.Errorf("state %d: %v of at most %.3g", i, d, largest)
		}
		t.Logf("state %d: %v of at most %.3g", i, d, largest)
	}
}

// Pruning the last block changes no bit of the row that is read of each text.
func TestQwenPruning(t *testing.T) {
	for _, o := range isas {
		dev := open(t, o)
		for _, name := range qwenCases {
			c := golden.Open(t, name)
			for _, compute := range computes(t, dev) {
				t.Run(fmt.Sprintf("%s/%s/%s", o.ISA, name, compute), func(t *testing.T) {
					for _, pooling := range []engine.Pooling{engine.PoolLast, engine.PoolCLS} {
						o := Options{Task: Embed, Compute: compute, Pooling: pooling}
						comparePruning(t, dev, c, o)
					}
				})
			}
		}
	}
}

// A text's vector has the same bits alone, in any batch and order, and with any number of threads.
func TestQwenBatchInvariance(t *testing.T) {
	for _, o := range isas {
		single := o
		single.Threads = 1
		many, one := open(t, o), open(t, single)
		for _, name := range qwenCases {
			c := golden.Open(t, name)
			for _, compute := range computes(t, many) {
				for _, pooling := range []engine.Pooling{engine.PoolMean, engine.PoolLast} {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", o.ISA, name, compute, pooling), func(t *testing.T) {
						o := Options{Task: Embed, Compute: compute, Pooling: pooling}
						m, r := load(t, many, c.Dir, o)
						m1, r1 := load(t, one, c.Dir, o)
						checkInvariance(t, goldenBatch(c), m, r, m1, r1, 6)
					})
				}
			}
		}
	}
}
