package arch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var modernbertCases = []string{"modernbert-window", "modernbert-biases", "modernbert-d128",
	"modernbert-yarn", "modernbert-global"}

// oddModernberts have heads without a GPU kernel.
var oddModernberts = []string{"modernbert-d22"}

// stateBounds says how far a state may be from transformers' float32, as a share of the largest
// value, and from its direction. f32 differs by the order of additions and by the angles, which are
// float64 here. The other classes are judged by the cosine of each state and its norm; int8 has 7
// bits of weights.
func stateBounds(compute engine.Compute) (maxShare, cosine, norm float64) {
	switch compute {
	case engine.ComputeF32:
		return 1e-5, 0.9999999, 1e-5
	case engine.ComputeBF16, engine.ComputeF16:
		return 1, 0.999, 0.01
	case engine.ComputeFP8:
		return 1, 0.97, 0.05 // the seventh block of gemma-window: 0.976
	}
	return 1, 0.99, 0.03
}

// rowsOf returns the rows of a matrix of that many columns.
func rowsOf(matrix []float32, columns int, rows []int32) []float32 {
	var out []float32
	for _, r := range rows {
		out = append(out, matrix[int(r)*columns:(int(r)+1)*columns]...)
	}
	return out
}

// compareStates runs all states of a case and returns the first that is too far off, or nil.
func compareStates(t *testing.T, m *Model, r *engine.Runner, c *golden.Case) error {
	t.Helper()
	maxShare, cosine, norm := stateBounds(m.Compute)
	b, rows := goldenBatch(c), c.Int32("rows")
	check := func(name string, got []float32) error {
		want, shape := c.Float32(name)
		if shape[1] != m.HiddenSize() {
			t.Fatalf("golden state of %d columns for a model of %d", shape[1], m.HiddenSize())
		}
		largest := 0.0
		for _, v := range want {
			largest = max(largest, float64(v), -float64(v))
		}
		d := golden.Compare(rowsOf(got, m.HiddenSize(), rows), want)
		if d.MaxAbs > maxShare*largest || d.Cosine < cosine || d.NormRatio < 1-norm || d.NormRatio > 1+norm {
			return fmt.Errorf("%s: %v; %.3g is the largest value", name, d, largest)
		}
		return nil
	}
	for first := 0; first <= m.Layers; first += engine.MaxOutputs {
		program, err := m.RecordHiddenStates(first)
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		run := engine.Batch{Program: program, IDs: b.ids, TypeIDs: b.types, CuSeqlens: b.cu}
		for i := range program.Outputs() {
			run.OutBytes[i] = int64(len(b.ids) * m.HiddenSize() * 4)
		}
		if err := r.Run(t.Context(), &run); err != nil {
			t.Fatal(err)
		}
		for i := range program.Outputs() {
			if err := check(fmt.Sprintf("hidden_%d", first+i), floats(run.Out[i])); err != nil {
				return err
			}
		}
	}
	program := record(t, m, Want{Give: Give(outStates)})
	last := "final"
	if !c.Has(last) { // nothing stands behind the blocks
		last = fmt.Sprintf("hidden_%d", m.Layers)
	}
	return check(last, values(t, r, engine.Batch{Program: program}, b, 0, len(b.ids)*m.HiddenSize()))
}

// outStates is values [R, hidden_size]: the last hidden state.
const outStates Output = "states"

// loadStates loads a model that also gives its last hidden state.
func loadStates(
	t *testing.T, dev *engine.Device, dir string, compute engine.Compute,
) (*Model, *engine.Runner) {
	m, r := load(t, dev, dir, Options{Task: Embed, Compute: compute})
	m.given[outStates] = given{rows: engine.PoolMean, record: func(r *recording) { r.OutputValues(r.x) }}
	return m, r
}

func TestModernbertStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(modernbertCases, oddModernberts) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestModernbertGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(modernbertCases, oddModernberts) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for kind, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, kind, s)
			}
		}
	}
}
