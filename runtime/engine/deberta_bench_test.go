package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// benchWeights makes weights of random values for a program of a benchmark.
type benchWeights struct {
	b       *testing.B
	d       *Device
	compute Compute
	random  *rand.Rand
}

func (w *benchWeights) weight(kind WeightKind, rows, k int64) *Weight {
	values := make([]float32, rows*k)
	for i := range values {
		values[i] = (w.random.Float32() - 0.5) / 4
	}
	return w.of(WeightSpec{Kind: kind, DType: F32, K: k,
		Parts: []Part{{Data: bytesOf(values...), Rows: rows}}})
}

func (w *benchWeights) of(s WeightSpec) *Weight {
	w.b.Helper()
	s.Compute = w.compute
	if s.Kind == DataWeight {
		s.Compute = ComputeF32
	}
	made, err := w.d.NewWeight(s)
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(made.Close)
	return made
}

// buckets are the rows of DeBERTa v3's tables by distance: 256 on either side, of which the nearest
// 128 have one distance each, up to 512.
func (w *benchWeights) buckets() *Weight {
	const half, reach = 128, 512
	rows := make([]int32, 2*reach+1)
	for i := range rows {
		n := math.Abs(float64(i - reach))
		if n > half {
			n = half + math.Ceil(math.Log(n/half)/math.Log((reach-1.)/half)*(half-1))
		}
		if i < reach {
			n = -n
		}
		rows[i] = int32(min(max(n+2*half, 0), 4*half-1))
	}
	return w.of(WeightSpec{Kind: DataWeight, DType: I32, K: int64(len(rows)),
		Parts: []Part{{Data: int32Bytes(rows...), Rows: 1}}})
}

// attentionLayers is how many attentions a program of a benchmark has, so that what is beside them
// does not count.
const attentionLayers = 6

// attention records attentions of 12 heads of 64 columns, one behind the other.
func (w *benchWeights) attention(tokens int64, of Attention) *Program {
	w.b.Helper()
	const wide = 12 * 64
	of.Heads, of.KVHeads, of.HeadDim = 12, 12, 64
	word := w.weight(TableWeight, 64, 3*wide)
	r := w.d.Record(Caps{MaxTokens: 4 * tokens, MaxSeqs: 4, MaxLen: tokens})
	x := r.EmbedLayerNorm(Embedding{Word: word, Norm: NoNorm})
	q, k, v := r.Columns(x, 0, wide), r.Columns(x, wide, wide), r.Columns(x, 2*wide, wide)
	for range attentionLayers {
		q = r.Attention(q, k, v, of)
	}
	r.OutputRows(r.Pool(q, PoolCLS))
	p, err := r.End()
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(p.Close)
	return p
}

// BenchmarkDisentangledAttention runs plain and disentangled attention in turns, on four texts at
// once, and reports the median of the ratios of their times.
func BenchmarkDisentangledAttention(b *testing.B) {
	d := openTest(b, Options{Threads: 1})
	info, err := d.Info()
	if err != nil {
		b.Fatal(err)
	}
	for _, compute := range []Compute{ComputeF32, ComputeBF16} {
		if !info.Supports(compute) {
			continue
		}
		for _, tokens := range []int64{128, 512, 2048} {
			b.Run(fmt.Sprintf("%s/%d", compute, tokens), func(b *testing.B) {
				w := &benchWeights{b, d, compute, rand.New(rand.NewPCG(1, 2))}
				table := func() *Weight { return w.weight(DataWeight, 512, 12*64) }
				programs := [2]*Program{w.attention(tokens, Attention{}), w.attention(tokens, Attention{
					Scale: float32(1 / math.Sqrt(3*64)), PosKey: table(), PosQuery: table(),
					Buckets: w.buckets()})}
				run := NewRunner(d)
				b.Cleanup(run.Close)
				batch := &Batch{CuSeqlens: []int32{0}}
				for range 4 {
					for range tokens {
						batch.IDs = append(batch.IDs, w.random.Int32N(64))
					}
					batch.CuSeqlens = append(batch.CuSeqlens, int32(len(batch.IDs)))
					batch.Items[0] = append(batch.Items[0], OutItem{DType: F32, Dims: 12 * 64})
				}
				batch.OutBytes[0] = 4 * 4 * 12 * 64
				var ratios []float64
				for b.Loop() {
					var took [2]time.Duration
					for i, p := range programs {
						batch.Program = p
						start := time.Now()
						if err := run.Run(context.Background(), batch); err != nil {
							b.Fatal(err)
						}
						took[i] = time.Since(start)
					}
					ratios = append(ratios, float64(took[1])/float64(took[0]))
				}
				slices.Sort(ratios)
				b.ReportMetric(ratios[len(ratios)/2], "×plain")
			})
		}
	}
}

// BenchmarkLSTM runs the LSTM of GLiNER models, 256 columns in each of two directions, over one
// text of 384 words, with the product that feeds it.
func BenchmarkLSTM(b *testing.B) {
	const words, columns, hidden = 384, 512, 256
	d := openTest(b, Options{Threads: 1})
	w := &benchWeights{b, d, ComputeF32, rand.New(rand.NewPCG(3, 4))}
	r := d.Record(Caps{MaxTokens: words, MaxSeqs: 1, MaxLen: words})
	x := r.EmbedLayerNorm(Embedding{Word: w.weight(TableWeight, 64, columns), Norm: NoNorm})
	gates := r.Linear(x, w.weight(LinearWeight, 8*hidden, columns), w.weight(VectorWeight, 8*hidden, 1),
		NoAct, NoValue)
	y := r.LSTM(gates, w.weight(LinearWeight, 4*hidden, hidden), w.weight(LinearWeight, 4*hidden, hidden))
	r.OutputRows(r.Pool(y, PoolMean))
	p, err := r.End()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	run := NewRunner(d)
	b.Cleanup(run.Close)
	batch := &Batch{Program: p, CuSeqlens: []int32{0, words}}
	for range words {
		batch.IDs = append(batch.IDs, w.random.Int32N(64))
	}
	batch.Items[0] = []OutItem{{DType: F32, Dims: 2 * hidden}}
	batch.OutBytes[0] = 4 * 2 * hidden
	for b.Loop() {
		if err := run.Run(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
