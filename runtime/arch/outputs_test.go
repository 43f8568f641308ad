package arch

import (
	"reflect"
	"slices"
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
		{"bge-m3", BGEM3, Want{}, free, []int64{texts * 4 * 64, tokens * 4, tokens * 4 * 64}}, // 48 tokens a text at most
		{"bge-m3", BGEM3, Want{}, 1000, []int64{1000, tokens * 4, 48 * 4 * 64}},
		{"bge-m3", BGEM3, Want{}, 10, []int64{4 * 64, 48 * 4, 48 * 4 * 64}},
		{"splade-bert", Splade, Want{}, free, []int64{texts * (16 + 8*101 + 8)}}, // rows begin at multiples of 16
		{"colbert-linear", ColBERT, Want{}, free, []int64{tokens * 4 * 24}},
		{"colbert-linear", ColBERT, Want{MaxSim: true}, free, []int64{texts * 16}},
		{"colbert-linear", ColBERT, Want{Muvera: muvera, SMVE: smve}, free, []int64{texts * 4 * 2 * 8 * 24, texts * (16 + 8*100)}},
		{"classify-bert", Classify, Want{}, free, []int64{texts * 16}}, // three labels
		{"tag-bert", Tag, Want{}, free, []int64{tokens * 4 * 5}},
	} {
		m, _ := load(t, dev, golden.Open(t, c.model).Dir, Options{Task: c.task, MaxTokens: tokens, MaxSeqs: texts})
		want := c.want
		if want == (Want{}) {
			want = m.All()
		}
		if got := m.OutputBytes(want, c.most); !slices.Equal(got, c.sizes) {
			t.Errorf("%s, %+v, at most %d: %d bytes, want %d", c.model, want, c.most, got, c.sizes)
		}
		p := record(t, m, want)
		if len(p.Outputs()) != len(c.sizes) {
			t.Errorf("%s, %+v: sizes of %d outputs, the program has %d", c.model, want, len(c.sizes), len(p.Outputs()))
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

// Each field that asks for an output gives one. All fields together give each output once, in one
// order.
func TestOutputsOfAWant(t *testing.T) {
	all := Want{Dense: true, Sparse: true, TokenWeights: true, Multi: true, MaxSim: true, Logits: true, TokenLogits: true,
		Muvera: fold.Muvera{Repetitions: 1}, SMVE: fold.SMVE{Repetitions: 1}}
	order := []Output{OutDense, OutSparse, OutTokenWeights, OutMulti, OutMaxSim, OutLogits, OutTokenLogits, OutMuvera, OutSMVE}
	if got := all.Outputs(); !slices.Equal(got, order) {
		t.Errorf("%v, want %v", got, order)
	}
	v := reflect.ValueOf(all)
	for i := range v.NumField() {
		one := reflect.New(v.Type()).Elem()
		one.Field(i).Set(v.Field(i))
		want := 1
		if one.IsZero() { // a field that asks for no output
			want = 0
		}
		if got := len(one.Interface().(Want).Outputs()); got != want {
			t.Errorf("%s alone gives %d outputs, want %d", v.Type().Field(i).Name, got, want)
		}
	}
}
