package arch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// poolingCases are the cases of tools/golden/pooling.py.
var poolingCases = []struct {
	name     string
	dim      int
	poolings int
	skips    bool
}{
	{"st-pool-all", 24, 6, false},
	{"st-pool-behind", 192, 6, true},
	{"st-pool-xlmr", 32, 1, true},
	{"st-pool-weighted", 32, 1, true},
}

// behind marks the tokens of a text that its prompt of n tokens leaves.
func behind(n int32, text packed) []uint8 {
	keep := make([]uint8, len(text.ids))
	for i := int(n); i < len(keep); i++ {
		keep[i] = 1
	}
	return keep
}

// pooledRows runs a batch through p and returns its first output.
func pooledRows(t *testing.T, p *engine.Program, r *engine.Runner, b packed, keep []uint8, dim int,
	normalize bool,
) []float32 {
	t.Helper()
	run := engine.Batch{Program: p, IDs: b.ids, TypeIDs: b.types, CuSeqlens: b.cu, Keep: keep}
	run.Items[0] = make([]engine.OutItem, len(b.cu)-1)
	for i := range run.Items[0] {
		run.Items[0][i] = engine.OutItem{DType: engine.F32, Normalize: normalize, Offset: int64(4 * dim * i)}
	}
	run.OutBytes[0] = int64(4 * dim * len(run.Items[0]))
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	return floats(run.Out[0])
}

// Every pooling, several at once and without a prompt's tokens, gives what sentence-transformers
// gives; and a text's bits are those it has alone, also where it is longer than 512 tokens.
func TestPoolings(t *testing.T) {
	dev := open(t, engine.Options{})
	for _, compute := range computes(t, dev) {
		checkPoolings(t, dev, compute, 0)
	}
}

// checkPoolings compares the cases' texts of at most `longest` tokens (0: all) with the reference.
func checkPoolings(t *testing.T, dev *engine.Device, compute engine.Compute, longest int) {
	bounds := map[engine.Compute]float64{engine.ComputeF32: 0.9999999, engine.ComputeF16: 0.9999,
		engine.ComputeBF16: 0.999, engine.ComputeINT8: 0.98, engine.ComputeFP8: 0.98}
	for _, want := range poolingCases {
		t.Run(fmt.Sprintf("%s/%s", want.name, compute), func(t *testing.T) {
			c := golden.Open(t, want.name)
			m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: compute})
			if m.Dim != want.dim || len(m.Poolings) != want.poolings || m.SkipsPrompt != want.skips ||
				(m.Pooling == 0) != (want.poolings > 1) {
				t.Fatalf("dim %d, poolings %v (%v), skips the prompt %v; expected %+v",
					m.Dim, m.Poolings, m.Pooling, m.SkipsPrompt, want)
			}
			all, lengths := goldenBatch(c), c.Int32("prompt_length")
			var texts []int
			for i := range lengths {
				if n := int(all.cu[i+1] - all.cu[i]); longest == 0 || n <= longest {
					texts = append(texts, i)
				}
			}
			var keep []uint8
			marks := make([][]uint8, len(texts))
			for i, text := range texts {
				if want.skips {
					marks[i] = behind(lengths[text], all.pick(text))
					keep = append(keep, marks[i]...)
				}
			}
			reference, _ := c.Float32("vectors")
			got := pooledRows(t, m.Program(), r, all.pick(texts...), keep, m.Dim, m.Normalize)
			for i, text := range texts {
				row, theirs := got[i*m.Dim:(i+1)*m.Dim], reference[text*m.Dim:(text+1)*m.Dim]
				d, largest := golden.Compare(row, theirs), max(slices.Max(theirs), -slices.Min(theirs))
				exact := compute != engine.ComputeF32 || d.MaxAbs <= 1e-5*float64(largest)
				if !exact || !(d.Cosine >= bounds[compute]) {
					t.Errorf("text %d of %d tokens: %v", text, all.cu[text+1]-all.cu[text], d)
				}
				alone := pooledRows(t, m.Program(), r, all.pick(text), marks[i], m.Dim, m.Normalize)
				if err := sameBits(alone, row); err != nil {
					t.Errorf("text %d alone: %v", text, err)
				}
			}
		})
	}
}

// Any number of poolings is joined in the order of the file: a vector is the first columns of that
// of more.
func TestJoinedPoolings(t *testing.T) {
	dev := open(t, engine.Options{})
	c := golden.Open(t, "st-pool-behind")
	b := goldenBatch(c).pick(0, 4)
	order := []string{"lasttoken", "max", "cls", "weightedmean", "mean_sqrt_len_tokens", "mean"}
	all, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: engine.ComputeF32})
	want := pooledRows(t, all.Program(), r, b, nil, all.Dim, false)
	for n := 1; n < len(order); n++ {
		dir := edit(t, c.Dir, "1_Pooling/config.json", map[string]any{"pooling_mode": order[:n]})
		m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
		if m.Dim != 32*n {
			t.Fatalf("%d poolings give %d columns", n, m.Dim)
		}
		got := pooledRows(t, m.Program(), r, b, nil, m.Dim, false)
		for i := range 2 {
			if err := sameBits(got[i*m.Dim:(i+1)*m.Dim], want[i*all.Dim:i*all.Dim+m.Dim]); err != nil {
				t.Errorf("%d poolings, text %d: %v", n, i, err)
			}
		}
	}
}

// A model whose files join several poolings has no single one of a request's choice, because its
// width and the layers behind follow from all. One with a single pooling has.
func TestAnotherPoolingThanSeveral(t *testing.T) {
	dev := open(t, engine.Options{})
	m, _ := load(t, dev, golden.Open(t, "st-pool-behind").Dir, Options{Task: Embed})
	if p, err := m.RecordPooling(engine.PoolCLS); !errors.Is(err, engine.ErrUnsupported) {
		t.Errorf("%v, %v", p, err)
	}
	m, _ = load(t, dev, golden.Open(t, "st-pool-weighted").Dir, Options{Task: Embed})
	p, err := m.RecordPooling(engine.PoolMax)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

// Only poolings of one row let the last block compute that row alone, and not where rows are left
// out.
func TestRowsThatPoolingReads(t *testing.T) {
	for _, c := range []struct {
		skips      bool
		want, rows engine.Pooling
	}{
		{false, engine.PoolCLS, engine.PoolCLS},
		{false, engine.PoolLast, engine.PoolLast},
		{false, 0, engine.PoolMean}, // several
		{false, engine.PoolMax, engine.PoolMax},
		{true, engine.PoolCLS, engine.PoolMean},
		{true, engine.PoolLast, engine.PoolMean},
	} {
		m := Model{SkipsPrompt: c.skips}
		if got := m.denseRows(c.want); got != c.rows {
			t.Errorf("%+v reads %v", c, got)
		}
	}
	for _, mode := range []engine.Pooling{engine.PoolMax, engine.PoolMeanSqrt, engine.PoolWeightedMean} {
		if got := keepOne(0, mode); got != engine.PoolMean {
			t.Errorf("%v keeps %v", mode, got)
		}
	}
	if !slices.Equal(meanPooling.modes, []engine.Pooling{engine.PoolMean}) {
		t.Error("a model without modules is not pooled by the mean")
	}
}

// The catalog states an adapter's pooling beside its base's, by one of three names.
func TestPoolingsBesideAnAdapter(t *testing.T) {
	const own = "sentence_transformers.models."
	modules := []module{{class: own + "Transformer", kind: "Transformer"},
		{class: own + "Pooling", kind: "Pooling", path: "1_Pooling"}}
	for pooling, want := range map[string]string{
		`{"pooling_mode":"lasttoken"}`:                   "",
		`{"pooling_mode":"max"}`:                         "pooling_mode: is [max]",
		`{"pooling_mode":["cls","mean"]}`:                "pooling_mode: is [cls mean]",
		`{"pooling_mode":"mean","include_prompt":false}`: "include_prompt: is false",
	} {
		var a AdapterBase
		err := a.readModules(fstest.MapFS{
			modulesFile: {Data: []byte(
				`[{"path":"","type":"` + own + `Transformer"},` +
					`{"path":"1_Pooling","type":"` + own + `Pooling"}]`)},
			"1_Pooling/" + configFile: {Data: []byte(pooling)},
		}, modules)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", pooling, err, want)
		}
	}
}
