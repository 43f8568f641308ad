package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

// newTinyFound records the tiny program's rows, z = (-0.5, 2) for ids 0 and 2 and o = (1.5, -2) for
// id 1, with two outputs of words and markers:
//
//	0  spans of at most 2 words: relu(first + last)·marker
//	1  pairs: two logits relu(word∘marker + word + marker)
func newTinyFound(t *testing.T, d *Device, widest int) (*Program, error) {
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
	r := d.Record(Caps{MaxTokens: 32, MaxSeqs: 8, MaxLen: 16, MaxWords: 32, MaxMarkers: 8})
	x := r.EmbedLayerNorm(Embedding{
		Word:  weight(TableWeight, 2, 0, 2, 6, 2, -1, 1),
		Gamma: weight(VectorWeight, 1, 1, 2),
		Beta:  weight(VectorWeight, 1, 0.5, 0),
	})
	words, markers := r.TakeFirst(x, RowsWords), r.TakeFirst(x, RowsMarkers)
	r.OutputSpans(SpanScores{Starts: words, Ends: words, Labels: markers, Widest: widest})
	r.OutputPairs(PairScores{Words: words, WordTerms: words, Labels: markers, LabelTerms: markers,
		Weight: weight(LinearWeight, 2, 1, 0, 0, 1), Head: weight(DataWeight, 2, 1, 0, 0, 1)})
	p, err := r.End()
	t.Cleanup(func() {
		if p != nil {
			p.Close()
		}
		for _, w := range weights {
			w.Close()
		}
	})
	return p, err
}

// tinyFound has the sequences z o o | o | z z o, each token a word, with the markers z o, none, and
// o. Every item has that much room.
func tinyFound(p *Program, room int) *Batch {
	places := []int32{0, 1, 2, 0, 0, 1, 2}
	b := &Batch{
		Program:   p,
		IDs:       []int32{0, 1, 1, 1, 2, 0, 1},
		CuSeqlens: []int32{0, 3, 4, 7},
		Words:     Places{Cu: []int32{0, 3, 4, 7}, First: places, Last: places},
		Markers:   Places{Cu: []int32{0, 2, 2, 3}, First: []int32{0, 1, 2}},
	}
	thresholds := [2][3]float32{{1.5, float32(math.Inf(-1)), -1}, {0.2, 0.2, 0.2}}
	for o := range thresholds {
		size := FoundBytes(&p.Outputs()[o], room)
		for i, threshold := range thresholds[o] {
			b.Items[o] = append(b.Items[o],
				OutItem{DType: F32, Dims: room, Threshold: threshold, Offset: int64(i) * size})
		}
		b.OutBytes[o] = 3 * size
	}
	return b
}

func TestFoundByHand(t *testing.T) {
	spans := [3][]Span{
		// 1.5, of z o and the marker o, is not above 1.5.
		{{0, 0, 0, 8}, {1, 1, 1, 4.5}, {1, 2, 1, 4.5}, {2, 2, 1, 4.5}}, {}, {{1, 2, 0, 1.5}, {2, 2, 0, 4.5}},
	}
	zo, oo := [3]float32{0.25}, [3]float32{5.25}
	pairs := [3][]Pair{
		{{0, 0, [3]float32{0, 8}}, {0, 1, zo}, {1, 0, zo}, {1, 1, oo}, {2, 0, zo}, {2, 1, oo}}, {},
		{{0, 0, zo}, {1, 0, zo}, {2, 0, oo}},
	}
	for _, kind := range []Kind{CPU, Ref} {
		for _, room := range []int{10, 2} { // the second is too small: the count says what is needed
			d := openTest(t, Options{Kind: kind})
			r := NewRunner(d)
			t.Cleanup(r.Close)
			p, err := newTinyFound(t, d, 2)
			if err != nil {
				t.Fatal(err)
			}
			b := tinyFound(p, room)
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			for i := range spans {
				n, got := Spans(b.Out[0][b.Items[0][i].Offset:], room)
				if want := spans[i]; n != len(want) || !slices.Equal(got, want[:min(room, n)]) {
					t.Errorf("%v, room %d, sequence %d: %d spans %v, want %v", kind, room, i, n, got, want)
				}
				n, also := Pairs(&p.Outputs()[1], b.Out[1][b.Items[1][i].Offset:], room)
				if want := pairs[i]; n != len(want) || !slices.Equal(also, want[:min(room, n)]) {
					t.Errorf("%v, room %d, sequence %d: %d pairs %v, want %v", kind, room, i, n, also, want)
				}
			}
		}
	}
}

func TestFoundRefuses(t *testing.T) {
	d := openTest(t, Options{Kind: CPU})
	for _, widest := range []int{0, MaxSpanWidth + 1, math.MaxInt} {
		if _, err := newTinyFound(t, d, widest); !errors.Is(err, ErrInvalid) {
			t.Errorf("widest %d: %v", widest, err)
		}
	}
	r := NewRunner(d)
	t.Cleanup(r.Close)
	p, err := newTinyFound(t, d, 2)
	if err != nil {
		t.Fatal(err)
	}
	b := tinyFound(p, 4)
	b.Items[0][1].Threshold = float32(math.NaN())
	if err := r.Run(context.Background(), b); !errors.Is(err, ErrInvalid) {
		t.Errorf("a threshold that is no number: %v", err)
	}
}
