package arch

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// headBounds says how far a head's output may be from the reference's float32, whose values reach
// 30. f32 differs by the order of additions. The other classes differ as their hidden states do
// (hiddenBounds), through one more matrix.
func headBounds(compute engine.Compute) (maxAbs, cosine float64) {
	switch compute {
	case engine.ComputeF32:
		return 3e-5, 0.9999999
	case engine.ComputeBF16:
		return 1, 0.999
	case engine.ComputeF16:
		return 0.2, 0.99999
	case engine.ComputeFP8:
		return 6, 0.98
	}
	return 1.5, 0.998
}

// record records a program that the test closes.
func record(t *testing.T, m *Model, want Want) *engine.Program {
	t.Helper()
	p, err := m.Record(want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// values runs b and returns output i, which has that many bytes, as float32.
func values(t *testing.T, r *engine.Runner, run engine.Batch, b packed, i int, count int) []float32 {
	t.Helper()
	run.IDs, run.TypeIDs, run.CuSeqlens = b.ids, b.types, b.cu
	run.OutBytes[i] = int64(count * 4)
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	return floats(run.Out[i])
}

// onEach runs check on every instruction set and class of the machine, and on the reference
// kernels.
func onEach(t *testing.T, check func(t *testing.T, dev *engine.Device, compute engine.Compute)) {
	for _, o := range append(slices.Clone(isas), engine.Options{Kind: engine.Ref}) {
		dev := open(t, o)
		for _, compute := range computes(t, dev) {
			if o.Kind == engine.Ref && compute != engine.ComputeF32 {
				continue
			}
			t.Run(fmt.Sprintf("kind=%s/isa=%s/%s", o.Kind, o.ISA, compute),
				func(t *testing.T) { check(t, dev, compute) })
		}
	}
}

func compareHead(t *testing.T, what string, compute engine.Compute, got, want []float32) {
	t.Helper()
	maxAbs, cosine := headBounds(compute)
	norm := 0.05
	if compute == engine.ComputeFP8 {
		norm = 0.15 // the four logits of rerank-identity, the largest 0.27, reach 0.10
	}
	if d := golden.Compare(got, want); d.MaxAbs > maxAbs || d.Cosine < cosine ||
		math.Abs(d.NormRatio-1) > norm {
		t.Errorf("%s: %v; bounds %.3g and %v", what, d, maxAbs, cosine)
	}
}

func TestClassificationHeads(t *testing.T) { onEach(t, checkClassification) }

func checkClassification(t *testing.T, dev *engine.Device, compute engine.Compute) {
	cases := map[string]labelConfig{
		"classify-bert":       {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-xlmr":       {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-distilbert": {[]string{"LABEL_0", "LABEL_1"}, Identity, true, false},
		"classify-electra":    {[]string{"LABEL_0", "LABEL_1", "LABEL_2"}, Identity, false, false},
		"classify-albert": {[]string{"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"}, Identity, false,
			false},
		"classify-modernbert":        {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-modernbert-mean":   {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-modernbert-global": {[]string{"LABEL_0", "LABEL_1"}, Identity, true, false},
		"classify-jina":              {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-jina-code":         {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-gte":               {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-qwen3":             {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-qwen2":             {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-eurobert":          {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-eurobert-bos":      {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-jxlmr":             {[]string{"LABEL_0"}, Sigmoid, false, false},
		"classify-nomic":             {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-mpnet":             {[]string{"LABEL_0", "LABEL_1", "LABEL_2"}, Identity, false, false},
		"classify-deberta":           {[]string{"joy", "anger", "fear"}, Identity, false, false},
		"classify-deberta-tanh":      {[]string{"LABEL_0"}, Sigmoid, false, false},
		"rerank-sigmoid":             {[]string{"LABEL_0"}, Sigmoid, false, false},
		"rerank-identity":            {[]string{"LABEL_0"}, Identity, false, false},
	}
	for name, want := range cases {
		c := golden.Open(t, name)
		m, r := load(t, dev, c.Dir, Options{Task: Classify, Compute: compute})
		if !slices.Equal(m.Labels, want.labels) || m.Activation != want.activation ||
			m.MultiLabel != want.multiLabel || m.Regression != want.regression {
			t.Errorf("%s: labels %q, activation %d, several %v; expected %+v",
				name, m.Labels, m.Activation, m.MultiLabel, want)
		}
		logits, shape := c.Float32("logits")
		b := asRead(m, goldenBatch(c))
		run := engine.Batch{Program: m.Program()}
		got := values(t, r, run, b, 0, shape[0]*shape[1])
		compareHead(t, name, compute, got, logits)
		whole, _ := load(t, dev, c.Dir, Options{Task: Classify, Compute: compute, NoPruning: true})
		if err := sameBits(values(t, r, engine.Batch{Program: whole.Program()}, b, 0, len(logits)),
			got); err != nil {
			t.Errorf("%s: pruning changes logits: %v", name, err)
		}
		if compute == engine.ComputeF32 && c.Has("scores") {
			scores, _ := c.Float32("scores")
			for i, x := range got {
				if want.activation == Sigmoid {
					x = sigmoid(x)
				}
				if d := golden.Compare([]float32{x}, scores[i:i+1]); d.MaxAbs > 1e-5 {
					t.Errorf("%s: score %d is %g, CrossEncoder's %g", name, i, x, scores[i])
				}
			}
		}
	}
}

// asRead returns the batch with the ids of each text that the model reads. The types of the others
// are left where they are: no model has both.
func asRead(m *Model, b packed) packed {
	out := packed{types: b.types, cu: []int32{0}}
	for i := range b.seqs() {
		out.ids = append(out.ids, m.Read(b.ids[b.cu[i]:b.cu[i+1]])...)
		out.cu = append(out.cu, int32(len(out.ids)))
	}
	return out
}

// A decoder reads a text to its last token that is not padding; other models, and one whose file
// names no padding token, read all of it. The head is refused where tokens see those behind them.
func TestDecodersReadNoPadding(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "classify-qwen3").Dir
	all := []int32{9, 30, 9, 31, 9, 9}
	for what, c := range map[string]struct {
		dir  string
		want []int32
	}{
		"a decoder":            {from, []int32{9, 30, 9, 31}},
		"without a pad token":  {edit(t, from, configFile, map[string]any{"pad_token_id": nil}), all},
		"another architecture": {golden.Open(t, "classify-modernbert").Dir, all},
	} {
		m, _ := load(t, dev, c.dir, Options{Task: Classify})
		if got := m.Read(all); !slices.Equal(got, c.want) {
			t.Errorf("%s reads %v, expected %v", what, got, c.want)
		}
		if got := m.Read(nil); len(got) != 0 {
			t.Errorf("%s reads %v of nothing", what, got)
		}
	}
	bothWays := edit(t, from, configFile, map[string]any{"is_causal": false})
	m, err := Load(bothWays, dev, Options{Task: Classify})
	if m != nil {
		m.Close()
	}
	refusedWith(t, err, "both ways", "config.json: architectures", "the task classify needs a head")
}

func TestTokenClassificationHeads(t *testing.T) { onEach(t, checkTagging) }

func checkTagging(t *testing.T, dev *engine.Device, compute engine.Compute) {
	cases := map[string][]string{
		"tag-bert":       {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-roberta":    {"LABEL_0", "LABEL_1", "LABEL_2"},
		"tag-distilbert": {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"},
		"tag-electra":    {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-albert":     {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"},
		"tag-modernbert": {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-qwen3":      {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-eurobert":   {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-mpnet":      {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"},
		"tag-gte":        {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
		"tag-nomic":      {"LABEL_0", "LABEL_1", "LABEL_2"},
		"tag-deberta":    {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"},
	}
	for name, labels := range cases {
		c := golden.Open(t, name)
		m, r := load(t, dev, c.Dir, Options{Task: Tag, Compute: compute})
		if !slices.Equal(m.Labels, labels) {
			t.Errorf("%s: labels %q, expected %q", name, m.Labels, labels)
		}
		want, _ := c.Float32("token_logits")
		compareHead(t, name, compute,
			values(t, r, engine.Batch{Program: m.Program()}, goldenBatch(c), 0, len(want)), want)
	}
}

// SPLADE models keep only the largest logits. Comparing the logits of every word shows whether the
// layers before the maximum are right.
func TestMaskedLanguageHeads(t *testing.T) { onEach(t, checkMasked) }

// outWords is values [R, Vocab]: the logits of every word.
const outWords Output = "words"

// words is a head of this test alone. It gives the logits of every word, and what sparse encoders
// give.
var words = Task{
	&head{name: "words", outputs: []Output{outWords}, read: func(dir fs.FS) (chain, loader, error) {
		c, load, err := readSplade(dir)
		return c, func(l *loading) error {
			h, err := loadMasked(files.Dir(l.folder()), l.names.masked, l.shape, l.p)
			if err != nil {
				return err
			}
			l.gives(outWords, given{rows: engine.PoolMean, record: func(r *recording) {
				r.OutputValues(r.Linear(h.beforeDecoder(r.Recorder, r.pass, r.x), h.decoder, h.bias,
					engine.NoAct, engine.NoValue))
			}})
			return load(l)
		}, err
	}}}

func checkMasked(t *testing.T, dev *engine.Device, compute engine.Compute) {
	for _, name := range []string{"masked-bert", "masked-bert-untied", "masked-xlmr", "masked-distilbert",
		"masked-electra", "masked-albert", "masked-modernbert", "masked-modernbert-untied", "masked-jina",
		"masked-gte-untied", "masked-nomic",
		"masked-nomic-published", "masked-eurobert", "masked-mpnet", "masked-deberta",
		"masked-deberta-v3"} {
		c := golden.Open(t, name)
		m, r := load(t, dev, c.Dir, Options{Task: words, Compute: compute})
		want, _ := c.Float32("word_logits")
		got := values(t, r, engine.Batch{Program: m.Program()}, goldenBatch(c), 0, len(want))
		compareHead(t, name, compute, got, want)
		checkLargest(t, name, r, record(t, m, Want{Give: Give(OutSparse)}), goldenBatch(c), got,
			m.Vocab, compute)
	}
}

func TestTokenVectors(t *testing.T) { onEach(t, checkTokenVectors) }

func checkTokenVectors(t *testing.T, dev *engine.Device, compute engine.Compute) {
	cases := map[string]int{"colbert-linear": 1, "colbert-dense": 1, "colbert-dense-act": 2,
		"colbert-jxlmr": 1}
	for name, layers := range cases {
		c := golden.Open(t, name)
		m, r := load(t, dev, c.Dir, Options{Task: ColBERT, Compute: compute})
		steps := m.Program().Describe()
		if n := strings.Count(steps, " linear") - 4*m.Layers; m.TokenDim != 24 || n != layers {
			t.Errorf("%s: vectors of %d columns by %d layers; expected 24 by %d\n%s",
				name, m.TokenDim, n, layers, steps)
		}
		checkVectors(t, c, m, r, m.Program(), 0, compute)
	}
}

// checkVectors compares output i, token rows, with the golden's vectors: with all rows kept, and
// with some.
func checkVectors(
	t *testing.T, c *golden.Case, m *Model, r *engine.Runner, p *engine.Program, i int,
	compute engine.Compute,
) {
	t.Helper()
	want, shape := c.Float32("vectors")
	b, width := goldenBatch(c), shape[1]
	run := engine.Batch{Program: p}
	fill := func(rows func(seq int) int) {
		at := int64(0)
		run.Items[i] = run.Items[i][:0]
		for seq := range b.seqs() {
			run.Items[i] = append(run.Items[i], engine.OutItem{DType: engine.F32, Offset: at})
			at += int64(rows(seq) * width * 4)
		}
	}
	fill(func(seq int) int { return int(b.cu[seq+1] - b.cu[seq]) })
	all := values(t, r, run, b, i, len(want))
	compareHead(t, c.Dir, compute, all, want)

	// Keep every third row of a sequence and its first, so that a sequence of one token keeps its
	// row.
	run.Keep = make([]uint8, len(b.ids))
	kept := make([]int, b.seqs())
	var rows []float32
	for seq := range b.seqs() {
		for at := b.cu[seq]; at < b.cu[seq+1]; at += 3 {
			run.Keep[at] = 1
			kept[seq]++
			rows = append(rows, all[int(at)*width:int(at+1)*width]...)
		}
	}
	fill(func(seq int) int { return kept[seq] })
	if err := sameBits(values(t, r, run, b, i, len(rows)), rows); err != nil {
		t.Errorf("%s: kept rows: %v", c.Dir, err)
	}
}

// BGE-M3's three outputs come from one pass.
func TestThreeOutputsOfBGEM3(t *testing.T) { onEach(t, checkBGEM3) }

func checkBGEM3(t *testing.T, dev *engine.Device, compute engine.Compute) {
	c := golden.Open(t, "bge-m3")
	m, r := load(t, dev, c.Dir, Options{Task: BGEM3, Compute: compute})
	if m.Pooling != engine.PoolCLS || !m.Normalize || m.TokenDim != 64 || m.Dim != 64 ||
		m.Own() != (Want{Give: Give(OutDense), Pooling: engine.PoolCLS}) {
		t.Errorf("pooling %v, normalize %v, %d and %d columns, own %+v",
			m.Pooling, m.Normalize, m.Dim, m.TokenDim, m.Own())
	}
	p := record(t, m, Want{Give: Give(OutDense, OutTokenWeights, OutMulti)})
	b := goldenBatch(c)
	dense, shape := c.Float32("dense")
	run := engine.Batch{Program: p}
	for seq := range b.seqs() {
		run.Items[0] = append(run.Items[0],
			engine.OutItem{DType: engine.F32, Normalize: true, Offset: int64(seq * m.Dim * 4)})
		run.Items[2] = append(run.Items[2],
			engine.OutItem{DType: engine.F32, Offset: int64(b.cu[seq]) * 64 * 4})
	}
	got := values(t, r, run, b, 0, len(dense))
	for seq := range shape[0] {
		compareHead(t, fmt.Sprint("dense ", seq), compute, got[seq*64:(seq+1)*64], dense[seq*64:(seq+1)*64])
	}
	if err := sameBits(embed(t, m, r, b, true), got); err != nil {
		t.Errorf("dense alone: %v", err)
	}
	weights, _ := c.Float32("token_weights")
	compareHead(t, "token weights", compute, values(t, r, run, b, 1, len(weights)), weights)
	vectors, _ := c.Float32("vectors")
	compareHead(t, "vectors", compute, values(t, r, run, b, 2, len(vectors)), vectors)
}

// checkLargest compares the sparse rows of a SPLADE program, log(1 + x), with the largest logits of
// each sequence.
func checkLargest(
	t *testing.T, name string, r *engine.Runner, p *engine.Program, b packed, logits []float32, vocab int,
	compute engine.Compute,
) {
	t.Helper()
	want := make([]float32, b.seqs()*vocab)
	for seq := range b.seqs() {
		for at := b.cu[seq]; at < b.cu[seq+1]; at++ {
			for w := range vocab {
				x := float32(math.Log1p(float64(max(0, logits[int(at)*vocab+w]))))
				want[seq*vocab+w] = max(want[seq*vocab+w], x)
			}
		}
	}
	compareHead(t, name+", SPLADE", compute, sparseRows(t, r, p, b, vocab), want)
}

// sparseRows runs b and spreads the sparse rows of output 0 over the vocabulary.
func sparseRows(t *testing.T, r *engine.Runner, p *engine.Program, b packed, vocab int) []float32 {
	t.Helper()
	size := engine.SparseBytes(vocab, engine.F32)
	run := engine.Batch{Program: p, IDs: b.ids, TypeIDs: b.types, CuSeqlens: b.cu}
	for seq := range b.seqs() {
		run.Items[0] = append(run.Items[0],
			engine.OutItem{DType: engine.F32, Dims: vocab, Offset: int64(seq) * size})
	}
	run.OutBytes[0] = int64(b.seqs()) * size
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	return spread(t, run.Out[0], b.seqs(), vocab)
}

// spread writes sparse rows as dense ones of columns columns.
func spread(t *testing.T, rows []byte, n, columns int) []float32 {
	t.Helper()
	size := engine.SparseBytes(columns, engine.F32)
	out := make([]float32, n*columns)
	for i := range n {
		count, places, data := engine.SparseRow(rows[int64(i)*size:], columns, engine.F32)
		if count != len(places) || !slices.IsSorted(places) {
			t.Fatalf("%d columns announced, %v found", count, places)
		}
		for j, x := range floats(data) {
			out[i*columns+int(places[j])] = x
		}
	}
	return out
}

// Whole SPLADE models that sentence-transformers saved, with both of its transforms.
func TestSPLADE(t *testing.T) { onEach(t, checkSPLADE) }

func checkSPLADE(t *testing.T, dev *engine.Device, compute engine.Compute) {
	for name, transform := range map[string]engine.Sparse{
		"splade-bert": engine.SparseLog, "splade-bert-log1p": engine.SparseLogLog,
	} {
		c := golden.Open(t, name)
		m, r := load(t, dev, c.Dir, Options{Task: Splade, Compute: compute})
		if c, err := readSparseChain(files.Dir(c.Dir)); err != nil || c.transform != transform {
			t.Errorf("%s: transform %d, expected %d, %v", name, c.transform, transform, err)
		}
		want, shape := c.Float32("splade")
		got := sparseRows(t, r, m.Program(), goldenBatch(c), shape[1])
		compareHead(t, name, compute, got, want)
	}
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
