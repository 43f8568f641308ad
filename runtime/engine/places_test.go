package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// newTinyPlaces records the tiny program's rows x, (-0.5, 2) for ids 0 and 2 and (1.5, -2) for id
// 1, with rows that the batch lists:
//
//	0  words: [first, last, mean, the first row's product with the last, their dots]
//	1  spans: [the first word's first row, the last word's first row, the sequence's first row]
//	2  an LSTM of both directions over the first rows of words, H 1
//	3  markers: their rows
func newTinyPlaces(t *testing.T, d *Device) *Program {
	t.Helper()
	var weights []*Weight
	weight := func(kind WeightKind, k int64, values ...float32) *Weight {
		w, err := d.NewWeight(WeightSpec{Kind: kind, Compute: ComputeF32, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(values...), Rows: int64(len(values)) / k}}})
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, w)
		return w
	}
	r := d.Record(Caps{MaxTokens: 32, MaxSeqs: 8, MaxLen: 16, MaxWords: 32, MaxMarkers: 8, MaxSpans: 8})
	x := r.EmbedLayerNorm(Embedding{
		Word:  weight(TableWeight, 2, 0, 2, 6, 2, -1, 1),
		Gamma: weight(VectorWeight, 1, 1, 2),
		Beta:  weight(VectorWeight, 1, 0.5, 0),
	})
	first, last := r.TakeFirst(x, RowsWords), r.TakeLast(x, RowsWords)
	words := r.Join(first, last, r.TakeMean(x, RowsWords))
	r.OutputValues(r.Join(words, r.Product(first, last), r.Dots(first, last)))
	r.OutputValues(r.Join(r.TakeFirst(first, RowsSpans), r.TakeLast(first, RowsSpans),
		r.TakeSequence(r.GatherRows(x, PoolCLS), RowsSpans)))
	gates := r.Linear(first, weight(LinearWeight, 2, tinyGates...), nil, NoAct, NoValue)
	r.OutputValues(r.LSTM(gates, weight(LinearWeight, 1, tinyRecurrent[0]...),
		weight(LinearWeight, 1, tinyRecurrent[1]...)))
	r.OutputValues(r.TakeFirst(x, RowsMarkers))
	p, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		for _, w := range weights {
			w.Close()
		}
	})
	return p
}

// W_ih of both directions [8, 2], and W_hh [4, 1] of each.
var (
	tinyGates = []float32{
		0.5, 0.25, -0.5, 0.75, 1, -0.25, 0.125, 0.5, -1, 0.5, 0.25, 0.25, 0.5, 1, -0.75, 0.5,
	}
	tinyRecurrent = [2][]float32{{0.5, -1, 2, 0.25}, {1, 0.5, -0.5, 1.5}}
)

// tinyStates runs PyTorch's LSTM over rows of two columns, in one direction.
func tinyStates(rows [][2]float64, direction int) []float32 {
	out := make([]float32, len(rows))
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	var h, c float64
	for i := range rows {
		t := i
		if direction == 1 {
			t = len(rows) - 1 - i
		}
		var z [4]float64
		for g := range z {
			w := tinyGates[8*direction+2*g:]
			z[g] = float64(w[0])*rows[t][0] + float64(w[1])*rows[t][1] +
				float64(tinyRecurrent[direction][g])*h
		}
		c = sigmoid(z[1])*c + sigmoid(z[0])*math.Tanh(z[2])
		h = sigmoid(z[3]) * math.Tanh(c)
		out[t] = float32(h)
	}
	return out
}

// tinyPlaces has the sequences 0 1 1 | 1 | 2 0 1 with the words [0, 1 1], none, and [2 0, 0, 1],
// the spans [0 to 1], none, and [2 to 2, 0 to 1], and a marker in the last two sequences.
func tinyPlaces(p *Program) *Batch {
	b := &Batch{
		Program:   p,
		IDs:       []int32{0, 1, 1, 1, 2, 0, 1},
		CuSeqlens: []int32{0, 3, 4, 7},
		Words: Places{
			Cu: []int32{0, 2, 2, 5}, First: []int32{0, 1, 0, 1, 2}, Last: []int32{0, 2, 1, 1, 2},
		},
		Spans:   Places{Cu: []int32{0, 1, 1, 3}, First: []int32{0, 2, 0}, Last: []int32{1, 2, 1}},
		Markers: Places{Cu: []int32{0, 0, 1, 2}, First: []int32{0, 2}},
	}
	b.OutBytes = [MaxOutputs]int64{5 * 9 * 4, 3 * 6 * 4, 5 * 2 * 4, 2 * 2 * 4}
	return b
}

func TestPlacesByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			r := NewRunner(d)
			t.Cleanup(r.Close)
			b := tinyPlaces(newTinyPlaces(t, d))
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			zero, one := [2]float32{-0.5, 2}, [2]float32{1.5, -2} // the rows of ids 0 and 2, and of id 1
			var words []float32
			ends := [][2][2]float32{{zero, zero}, {one, one}, {zero, zero}, {zero, zero}, {one, one}}
			for _, w := range ends {
				f, l := w[0], w[1]
				words = append(words, f[0], f[1], l[0], l[1], (f[0]+l[0])/2, (f[1]+l[1])/2, f[0]*l[0],
					f[1]*l[1], f[0]*l[0]+f[1]*l[1])
			}
			if err := near(floatsOf(b.Out[0]), words); err != nil {
				t.Errorf("words: %v", err)
			}
			spans := []float32{
				-0.5, 2, 1.5, -2, -0.5, 2, 1.5, -2, 1.5, -2, -0.5, 2, -0.5, 2, -0.5, 2, -0.5, 2,
			}
			if err := near(floatsOf(b.Out[1]), spans); err != nil {
				t.Errorf("spans: %v", err)
			}
			rows := [][2]float64{{-0.5, 2}, {1.5, -2}, {-0.5, 2}, {-0.5, 2}, {1.5, -2}}
			var states []float32
			for _, s := range [][2]int{{0, 2}, {2, 5}} {
				ahead, back := tinyStates(rows[s[0]:s[1]], 0), tinyStates(rows[s[0]:s[1]], 1)
				for i := range ahead {
					states = append(states, ahead[i], back[i])
				}
			}
			if err := near(floatsOf(b.Out[2]), states); err != nil {
				t.Errorf("lstm: %v", err)
			}
			if err := near(floatsOf(b.Out[3]), []float32{1.5, -2, 1.5, -2}); err != nil {
				t.Errorf("markers: %v", err)
			}
			// A batch without any of them.
			b.Words, b.Spans, b.Markers = Places{}, Places{}, Places{}
			b.OutBytes = [MaxOutputs]int64{}
			if err := r.Run(context.Background(), b); err != nil {
				t.Errorf("without rows: %v", err)
			}
		})
	}
}

// Every place is checked once, when the batch is loaded; the error names it.
func TestPlacesChecked(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	p := newTinyPlaces(t, d)
	r := NewRunner(d)
	t.Cleanup(r.Close)
	for name, c := range map[string]struct {
		change func(b *Batch)
		want   string
	}{
		"beyond its sequence": {func(b *Batch) { b.Words.First[0], b.Words.Last[0] = 3, 3 },
			"word_first is 3 in row 0 of sequence 0, which has 3 rows of tokens"},
		"negative": {func(b *Batch) { b.Words.First[3] = -2 },
			"word_first is -2 in row 1 of sequence 2, which has 3 rows of tokens"},
		"a first of none": {func(b *Batch) { b.Words.First[3] = -1 },
			"word_last is 1 in row 1 of sequence 2, and word_first is -1"},
		"a last of none": {func(b *Batch) { b.Words.Last[3] = -1 },
			"word_last is -1 in row 1 of sequence 2, before word_first, which is 1"},
		"last beyond": {func(b *Batch) { b.Words.Last[4] = 3 },
			"word_last is 3 in row 2 of sequence 2, which has 3 rows of tokens"},
		"last before first": {func(b *Batch) { b.Words.First[1], b.Words.Last[1] = 2, 1 },
			"word_last is 1 in row 1 of sequence 0, before word_first, which is 2"},
		"a span beyond the words": {func(b *Batch) { b.Spans.Last[0] = 2 },
			"span_last is 2 in row 0 of sequence 0, which has 2 rows of words"},
		"a span without words": {func(b *Batch) { b.Spans.Cu = []int32{0, 1, 2, 3} },
			"span_first is 2 in row 0 of sequence 1, which has 0 rows of words"},
		"a marker beyond": {func(b *Batch) { b.Markers.First[0] = 1 },
			"markers is 1 in row 0 of sequence 1, which has 1 rows of tokens"},
		"cu too short": {func(b *Batch) { b.Words.Cu = b.Words.Cu[:3] },
			"cu of words has 3 entries for 3 sequences"},
		"too few firsts": {func(b *Batch) { b.Words.First = b.Words.First[:4] },
			"cu of words ends at 5, but there are 4 places"},
		"no lasts":        {func(b *Batch) { b.Words.Last = nil }, "word_last is left out"},
		"falling offsets": {func(b *Batch) { b.Words.Cu = []int32{0, 3, 2, 5} }, "the offsets of words fall"},
		"too many words": {func(b *Batch) {
			b.Words = Places{Cu: []int32{0, 0, 17, 17}, First: make([]int32, 17), Last: make([]int32, 17)}
		}, "sequence 1 has 17 rows of words"},
	} {
		b := tinyPlaces(p)
		c.change(b)
		err := r.Run(context.Background(), b)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := r.Run(context.Background(), tinyPlaces(p)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A row that is made of no rows is 0, and what is computed of it counts it.
func TestPlacesOfNothing(t *testing.T) {
	isSet := func(v float32) bool { return v != 0 }
	for _, o := range []Options{{Threads: 1}, {Kind: Ref}} {
		d := openTest(t, o)
		p := newTinyPlaces(t, d)
		r := NewRunner(d)
		t.Cleanup(r.Close)
		b := tinyPlaces(p)
		b.Words.First[3], b.Words.Last[3] = -1, -1 // of five
		if err := r.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		columns := p.Outputs()[0].Columns
		words := floatsOf(b.Out[0])
		if row := words[3*columns : 4*columns]; slices.ContainsFunc(row, isSet) {
			t.Errorf("%v: a word of nothing is %v", o.Kind, row)
		}
		if row := words[2*columns : 3*columns]; !slices.ContainsFunc(row, isSet) {
			t.Errorf("%v: the word beside it is 0, too", o.Kind)
		}
	}
}

// Rows that the caps have no room for, and a marker's last token, are refused while recording.
func TestPlacesRefused(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	for name, take := range map[string]func(r *Recorder){
		"no room for rows of spans":      func(r *Recorder) { r.TakeFirst(1, RowsSpans) },
		"no room for rows of rows(9)":    func(r *Recorder) { r.TakeFirst(1, 9) },
		"it has no last one and no mean": func(r *Recorder) { r.TakeMean(1, RowsMarkers) },
	} {
		r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8, MaxWords: 8, MaxMarkers: 8})
		take(r)
		if _, err := r.End(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}
