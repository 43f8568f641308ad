package arch

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// gliclassCases are the golden models, whose variants differ in config.json alone.
var gliclassCases = []string{"gliclass-modern", "gliclass-wide", "gliclass-dot", "gliclass-mlp",
	"gliclass-cross", "gliclass-segments", "gliclass-squeeze", "gliclass-lstm", "gliclass-deberta",
	"gliclass-deberta-squeeze", "gliclass-squeeze-cross", "gliclass-squeeze-lstm",
	"gliclass-deberta-segments", "gliclass-hopfield", "gliclass-mt5"}

// gliclassVariants returns what makes each variant of a golden model.
func gliclassVariants(t *testing.T, c *golden.Case) (list []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, "variants.json"))
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// changedConfig copies a model with other values in its config.json.
func changedConfig(t *testing.T, dir string, changes map[string]any) string {
	t.Helper()
	out := t.TempDir()
	config := map[string]any{}
	b, err := os.ReadFile(filepath.Join(dir, configFile))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	maps.Copy(config, changes)
	if err == nil {
		b, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(out, configFile), b, 0o600)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(dir, "model.safetensors"), filepath.Join(out, "model.safetensors"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gliclassBatch lists the rows of packed texts as the layout says.
func gliclassBatch(l *LabelLayout, ids, cu []int32) (b engine.Batch) {
	b.IDs, b.CuSeqlens = ids, cu
	b.Words.Cu, b.Markers.Cu = []int32{0}, []int32{0}
	for i := range len(cu) - 1 {
		rows := l.Rows(ids[cu[i]:cu[i+1]])
		b.TypeIDs = append(b.TypeIDs, rows.Segments...)
		b.Words.First = append(b.Words.First, rows.First...)
		b.Words.Last = append(b.Words.Last, rows.Last...)
		b.Markers.First = append(b.Markers.First, rows.Text...)
		b.Words.Cu = append(b.Words.Cu, int32(len(b.Words.First)))
		b.Markers.Cu = append(b.Markers.Cu, int32(len(b.Markers.First)))
	}
	if !l.TextRows {
		b.Markers.Cu = nil
	}
	return b
}

func TestGLiClass(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		checkGLiClass(t, dev, compute, 0, 1)
	})
}

// checkGLiClass compares logits of every parts-th variant from number `part` on, counted through
// all models, or checks that they are refused.
func checkGLiClass(t *testing.T, dev *engine.Device, compute engine.Compute, part, parts int) {
	t.Helper()
	count, first := 0, computes(t, dev)[0]
	for _, name := range gliclassCases {
		c := golden.Open(t, name)
		served := slices.Contains(computesFor(t, dev, name), compute)
		for number, changes := range gliclassVariants(t, c) {
			count++
			if (count-1)%parts != part || !served {
				continue
			}
			if compute != first && number > 0 && name == "gliclass-modern" {
				continue // poolers of float32 rows, whatever the class is
			}
			dir := changedConfig(t, c.Dir, changes)
			m, err := Load(dir, dev, Options{Task: GLiClass, Compute: compute})
			if key := gliclassRefused(t, dev, dir); key != "" {
				refusedWith(t, err, fmt.Sprintf("%s %v", name, changes), configFile+": "+key, "--device cpu")
				continue
			}
			if err != nil {
				t.Errorf("%s %v: %v", name, changes, err)
				continue
			}
			got, want := gliclassLogits(t, dev, m, c, number)
			m.Close()
			maxAbs, cosine := gliclassBounds(compute)
			if d := golden.Compare(got, want); d.MaxAbs > maxAbs*largest(want) || d.Cosine < cosine {
				t.Errorf("%s %v: %v, the largest %.3g", name, changes, d, largest(want))
			}
		}
	}
}

// gliclassRefused returns the key of config.json for which the device refuses a model: on GPUs,
// the scorers hopfield and cross-attn, and poolings to sums and sizes of rows. "": none.
func gliclassRefused(t *testing.T, dev *engine.Device, dir string) string {
	t.Helper()
	info, err := dev.Info()
	if err != nil {
		t.Fatal(err)
	}
	c, err := readGLiClassConfig(os.DirFS(dir))
	switch {
	case err != nil:
		t.Fatal(err)
	case info.Kind != engine.CUDA:
	case c.Scorer == "hopfield" || c.Scorer == "cross-attn":
		return "scorer_type"
	case slices.Contains([]string{"sum", "rms", "abs_max", "abs_avg"}, c.Pooling):
		return "pooling_strategy"
	}
	return ""
}

// gliclassBounds says how far logits may be from the reference's float32, as a share of the
// largest.
func gliclassBounds(compute engine.Compute) (share, cosine float64) {
	switch compute {
	case engine.ComputeF32:
		return 1e-5, 0.9999999
	case engine.ComputeBF16:
		return 0.1, 0.998
	case engine.ComputeFP8:
		return 0.5, 0.92 // the worst: 0.451 of gliclass-mlp, and 0.926 of gliclass-mt5
	}
	return 0.3, 0.97
}

func largest(x []float32) float64 {
	top := 0.0
	for _, v := range x {
		top = max(top, math.Abs(float64(v)))
	}
	return top
}

// gliclassLogits runs the texts of a golden model together, each alone, and in another order, which
// must give the same bits.
func gliclassLogits(
	t *testing.T, dev *engine.Device, m *Model, c *golden.Case, number int,
) (got, want []float32) {
	t.Helper()
	v := strconv.Itoa(number) + "_"
	prefix := ""
	if c.Has(v + "ids") {
		prefix = v
	}
	ids, cu := c.Int32(prefix+"ids"), c.Int32(prefix+"cu_seqlens")
	want, _ = c.Float32(v + "logits")
	labels := c.Int32("labels")
	r := engine.NewRunner(dev)
	defer r.Close()
	all := packed{ids: ids, cu: cu}
	do := func(order ...int) []float32 {
		p, n := all.pick(order...), int32(0)
		for _, i := range order {
			n += labels[i]
		}
		b := gliclassBatch(m.Labelled, p.ids, p.cu)
		b.Program, b.OutBytes[0] = m.Program(), int64(4*n)
		if err := r.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return floats(b.Out[0])
	}
	order := make([]int, all.seqs())
	for i := range order {
		order[i] = i
	}
	got = do(order...)
	slices.Reverse(order)
	at, end, reversed := 0, len(got), do(order...)
	for i, n := range labels {
		mine := got[at : at+int(n)]
		if err := sameBits(do(i), mine); err != nil {
			t.Errorf("text %d alone: %v", i, err)
		}
		if err := sameBits(reversed[end-at-int(n):end-at], mine); err != nil {
			t.Errorf("text %d in another order: %v", i, err)
		}
		at += int(n)
	}
	return got, want
}

// The states of an encoder that is inside another package's model are those of the package.
func TestGLiClassHiddenStates(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.CPU})
	c := golden.Open(t, "gliclass-modern")
	m, r := load(t, dev, c.Dir, Options{Task: GLiClass, Compute: engine.ComputeF32})
	ids, cu, rows := c.Int32("ids"), c.Int32("cu_seqlens"), c.Int32("rows")
	p, err := m.RecordHiddenStates(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	columns := m.HiddenSize()
	b := engine.Batch{Program: p, IDs: ids, CuSeqlens: cu}
	for i := range m.Layers + 1 {
		b.OutBytes[i] = int64(4 * len(ids) * columns)
	}
	if err := r.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for i := range m.Layers { // transformers gives the last one behind the final norm
		want, _ := c.Float32("hidden_" + strconv.Itoa(i))
		all, got := floats(b.Out[i]), []float32(nil)
		for _, row := range rows {
			got = append(got, all[int(row)*columns:(int(row)+1)*columns]...)
		}
		if d := golden.Compare(got, want); d.MaxAbs > 1e-5*largest(want) {
			t.Errorf("state %d: %v", i, d)
		}
	}
}
