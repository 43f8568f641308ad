package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// Every output of a program has a size, in the order in which it is declared. Rows count by texts,
// token rows by tokens, sparse rows by their columns. The sizes of several texts are bounded, that
// of one text is not.
func TestOutputBytes(t *testing.T) {
	const tokens, texts = 100, 8
	dev := open(t, engine.Options{})
	const free = 1 << 30
	muvera, smve := fold.Muvera{Repetitions: 2, Bits: 3}, fold.SMVE{Repetitions: 2, Width: 50, Top: 3}
	for _, c := range []struct {
		model string
		task  Task
		want  Want
		most  int64
		sizes []int64
	}{
		// 48 tokens a text at most
		{"bge-m3", BGEM3, Want{}, free, []int64{texts * 4 * 64, tokens * 4, tokens * 4 * 64}},
		{"bge-m3", BGEM3, Want{}, 1000, []int64{1000, tokens * 4, 48 * 4 * 64}},
		{"bge-m3", BGEM3, Want{}, 10, []int64{4 * 64, 48 * 4, 48 * 4 * 64}},
		// rows begin at multiples of 16
		{"splade-bert", Splade, Want{}, free, []int64{texts * (16 + 8*101 + 8)}},
		{"colbert-linear", ColBERT, Want{}, free, []int64{tokens * 4 * 24}},
		{"colbert-linear", ColBERT, Want{Give: Give(OutMaxSim)}, free, []int64{texts * 16}},
		{"colbert-linear", ColBERT, Want{Muvera: muvera, SMVE: smve}, free,
			[]int64{texts * 4 * 2 * 8 * 24, texts * (16 + 8*100)}},
		{"classify-bert", Classify, Want{}, free, []int64{texts * 16}}, // three labels
		{"tag-bert", Tag, Want{}, free, []int64{tokens * 4 * 5}},
	} {
		m, _ := load(t, dev, golden.Open(t, c.model).Dir,
			Options{Task: c.task, MaxTokens: tokens, MaxSeqs: texts})
		want := c.want
		if want == (Want{}) {
			want = m.All()
		}
		if got := m.OutputBytes(record(t, m, want), want, c.most); !slices.Equal(got, c.sizes) {
			t.Errorf("%s, %+v, at most %d: %d bytes, want %d", c.model, want, c.most, got, c.sizes)
		}
		p := record(t, m, want)
		if len(p.Outputs()) != len(c.sizes) {
			t.Errorf("%s, %+v: sizes of %d outputs, the program has %d",
				c.model, want, len(c.sizes), len(p.Outputs()))
		}
		_, none := p.Footprint().Bytes()
		for i := range c.sizes { // each output counts, in both slots
			sizes := make([]int64, len(c.sizes))
			sizes[i] = 1 << 20
			if _, slots := p.Footprint(sizes...).Bytes(); slots-none != 2*(1<<20-64<<10) {
				t.Errorf("%s: output %d of 1 MiB adds %d bytes to both slots", c.model, i, slots-none)
			}
		}
	}
}

// A program says of each output that it was asked for, in order and by name, what heads promise:
// its form, its columns, and whether its rows are tokens.
func TestProgramsSayWhatTheyGive(t *testing.T) {
	dev := open(t, engine.Options{})
	muvera, smve := fold.Muvera{Repetitions: 2, Bits: 3}, fold.SMVE{Repetitions: 2, Width: 50, Top: 3}
	dense, sparse := engine.Output{Name: "dense", Form: engine.FormRows, Columns: 64}, engine.Output{
		Name: "sparse", Form: engine.FormSparse, Columns: 101,
	}
	weights := engine.Output{Name: "token_weights", Form: engine.FormValues, PerToken: true, Columns: 1}
	multi := func(n int) engine.Output {
		return engine.Output{Name: "multivector", Form: engine.FormTokenRows, PerToken: true, Columns: n}
	}
	maxsim := engine.Output{Name: "maxsim", Form: engine.FormValues, Columns: 1}
	for _, c := range []struct {
		model string
		task  Task
		want  Want
		says  []engine.Output
	}{
		{"bge-m3", BGEM3, Want{}, []engine.Output{dense, weights, multi(64)}},
		{"bge-m3", BGEM3, Want{Give: Give(OutMaxSim, OutDense)}, []engine.Output{maxsim, dense}},
		{"splade-bert", Splade, Want{}, []engine.Output{sparse}},
		{"colbert-linear", ColBERT, Want{}, []engine.Output{multi(24)}},
		{"colbert-linear", ColBERT, Want{Give: Outputs{"", OutMulti}, Muvera: muvera, SMVE: smve},
			[]engine.Output{multi(24), {Name: "muvera", Form: engine.FormRows, Columns: 2 * 8 * 24},
				{Name: "smve", Form: engine.FormSparse, Columns: 100}}},
		{"classify-bert", Classify, Want{},
			[]engine.Output{{Name: "logits", Form: engine.FormValues, Columns: 3}}},
		{"tag-bert", Tag, Want{},
			[]engine.Output{{Name: "token_logits", Form: engine.FormValues, PerToken: true, Columns: 5}}},
	} {
		m, _ := load(t, dev, golden.Open(t, c.model).Dir, Options{Task: c.task})
		want := c.want
		if want == (Want{}) {
			want = m.All()
		}
		if got := record(t, m, want).Outputs(); !slices.Equal(got, c.says) {
			t.Errorf("%s, %+v: the program says %+v, want %+v", c.model, want, got, c.says)
		}
		if own := m.Program().Outputs(); want == m.All() && own[0] != c.says[0] {
			t.Errorf("%s: the model's own program says %+v, want %+v", c.model, own, c.says[:1])
		}
	}
}

// Outputs of the tokens' vectors share the layers that make them.
func TestTokenVectorsAreRecordedOnce(t *testing.T) {
	m, _ := load(t, open(t, engine.Options{}), golden.Open(t, "colbert-linear").Dir, Options{Task: ColBERT})
	one := strings.Count(m.Program().Describe(), " linear")
	all := record(t, m, Want{
		Give:   Give(OutMaxSim, OutMulti),
		Muvera: fold.Muvera{Repetitions: 2, Bits: 3},
		SMVE:   fold.SMVE{Repetitions: 2, Width: 50, Top: 3},
	})
	if n := strings.Count(all.Describe(), " linear"); n != one || len(all.Outputs()) != 4 {
		t.Errorf("%d linears for %d outputs, %d for one", n, len(all.Outputs()), one)
	}
}

// A list of outputs has no more than a program, and Has finds none that is not there.
func TestListsOfOutputs(t *testing.T) {
	full := Give(OutDense, OutMulti, OutMaxSim, OutLogits)
	if !full.Has(OutLogits) || full.Has(OutSparse) || Give(OutDense).Has("") || Give() != (Outputs{}) {
		t.Error("wrong")
	}
	defer func() {
		if recover() == nil {
			t.Error("a list of five outputs")
		}
	}()
	Give(OutDense, OutMulti, OutMaxSim, OutLogits, OutSparse)
}
