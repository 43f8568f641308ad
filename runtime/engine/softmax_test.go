package engine

import (
	"context"
	"math"
	"strings"
	"testing"
)

// recordTiny records a program of the tiny rows (newTinyPlaces), its inner products of the words'
// first and last rows among them.
func recordTiny(t *testing.T, d *Device, record func(r *Recorder, x, dots Value)) (*Program, error) {
	t.Helper()
	weight := func(kind WeightKind, k int64, values ...float32) *Weight {
		w, err := d.NewWeight(WeightSpec{Kind: kind, Compute: ComputeF32, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(values...), Rows: int64(len(values)) / k}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	r := d.Record(Caps{MaxTokens: 32, MaxSeqs: 8, MaxLen: 16, MaxWords: 32})
	x := r.EmbedLayerNorm(Embedding{
		Word:  weight(TableWeight, 2, 0, 2, 6, 2, -1, 1),
		Gamma: weight(VectorWeight, 1, 1, 2),
		Beta:  weight(VectorWeight, 1, 0.5, 0),
	})
	record(r, x, r.Dots(r.TakeFirst(x, RowsWords), r.TakeLast(x, RowsWords)))
	p, err := r.End()
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

// The softmax over the words of a sequence, and poolings of sums and sizes, by hand.
func TestSoftmaxAndSizesByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		d := openTest(t, Options{Kind: kind})
		p, err := recordTiny(t, d, func(r *Recorder, x, dots Value) {
			r.OutputValues(r.Softmax(dots, 0.25))
			r.OutputValues(r.Join(r.Pool(x, PoolSum), r.Pool(x, PoolRMS)))
			r.OutputValues(r.Join(r.Pool(x, PoolAbsMax), r.Pool(x, PoolAbsMean)))
		})
		if err != nil {
			t.Fatal(err)
		}
		r := NewRunner(d)
		t.Cleanup(r.Close)
		b := tinyPlaces(p)
		b.Spans, b.Markers = Places{}, Places{}
		b.OutBytes = [MaxOutputs]int64{5 * 4, 3 * 4 * 4, 3 * 4 * 4}
		if err := r.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		// Words: 0 0, 1 1; none; 0 0, 0 0, 1 1. A row's product with itself is 4.25, or 6.25.
		zero, one := math.Exp(0.25*4.25), math.Exp(0.25*6.25)
		want := []float32{
			float32(zero / (zero + one)), float32(one / (zero + one)),
			float32(zero / (2*zero + one)), float32(zero / (2*zero + one)), float32(one / (2*zero + one)),
		}
		if err := near(floatsOf(b.Out[0]), want); err != nil {
			t.Errorf("%v: softmax: %v", kind, err)
		}
		root := func(x float64) float32 { return float32(math.Sqrt(x)) }
		if err := near(floatsOf(b.Out[1]), []float32{
			2.5, -2, root(4.75 / 3), 2, 1.5, -2, 1.5, 2, 0.5, 2, root(2.75 / 3), 2,
		}); err != nil {
			t.Errorf("%v: sum and rms: %v", kind, err)
		}
		if err := near(floatsOf(b.Out[2]), []float32{
			1.5, 2, 3.5 / 3, 2, 1.5, 2, 1.5, 2, 1.5, 2, 2.5 / 3, 2,
		}); err != nil {
			t.Errorf("%v: sizes: %v", kind, err)
		}
	}
}

func TestSoftmaxIsRefused(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	for says, record := range map[string]func(r *Recorder, x, dots Value) Value{
		"x has 2 columns of class f32; one of class f32 is needed": func(r *Recorder, x, _ Value) Value {
			return r.Softmax(x, 1)
		},
		"x has rows of sequences; those of a ROWS space are needed": func(r *Recorder, _, dots Value) Value {
			return r.Softmax(r.Pool(dots, PoolMax), 1)
		},
		"scale is 0; a finite number above 0 is needed": func(r *Recorder, _, dots Value) Value {
			return r.Softmax(dots, 0)
		},
		"scale is -1;": func(r *Recorder, _, dots Value) Value { return r.Softmax(dots, -1) },
		"scale is inf;": func(r *Recorder, _, dots Value) Value {
			return r.Softmax(dots, float32(math.Inf(1)))
		},
		"scale is nan;": func(r *Recorder, _, dots Value) Value {
			return r.Softmax(dots, float32(math.NaN()))
		},
		"mode 12 is none of sie_pooling": func(r *Recorder, x, _ Value) Value {
			return r.Pool(x, PoolAbsMean+1)
		},
	} {
		_, err := recordTiny(t, d, func(r *Recorder, x, dots Value) { r.OutputValues(record(r, x, dots)) })
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
