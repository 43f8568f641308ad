//go:build native && cuda && emulated

package engine

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// newHeads records three outputs over one embedding: token rows after a linear with adapters, the
// late interaction of the kept rows, and SPLADE's maxima.
func newHeads(t *testing.T, d *Device, compute Compute) (*Program, func()) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	var weights []*Weight
	weight := func(kind WeightKind, rows, k int64, scale, offset float64) *Weight {
		var data []byte
		dtype := F32
		for range rows * k {
			v := math.Float32bits(float32(rng.NormFloat64()*scale + offset))
			if kind == DataWeight && compute == ComputeBF16 {
				dtype = BF16
				data = binary.LittleEndian.AppendUint16(data, uint16(v>>16))
				continue
			}
			data = binary.LittleEndian.AppendUint32(data, v)
		}
		w, err := d.NewWeight(WeightSpec{
			Kind: kind, Compute: compute, DType: dtype, K: k, Parts: []Part{{Data: data, Rows: rows}},
		})
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, w)
		return w
	}
	const c = blockColumns
	caps := blockCaps
	caps.MaxQueryRows = 8
	r := d.Record(caps)
	x := r.EmbedLayerNorm(Embedding{
		Word:  weight(TableWeight, blockVocabulary, c, 1, 0),
		Gamma: weight(VectorWeight, c, 1, 0.2, 1),
		Eps:   1e-12,
	})
	y := r.LinearLoRA(x, weight(LinearWeight, c, c, 0.12, 0), nil, GELU, x, []LoRA{
		{A: weight(DataWeight, 4, c, 0.2, 0), B: weight(DataWeight, c, 4, 0.3, 0)},
		{A: weight(DataWeight, 8, c, 0.2, 0), B: weight(DataWeight, c, 8, 0.3, 0)}})
	r.OutputTokenRows(y)
	r.OutputValues(r.MaxSim(r.KeepRows(y), true))
	r.OutputSparse(r.Splade(x, weight(LinearWeight, 90, c, 0.12, 0), nil), SparseLog)
	p, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	return p, func() {
		p.Close()
		for _, w := range weights {
			w.Close()
		}
	}
}

// headBatch returns a batch that uses every optional input; its texts are those of texts.
func headBatch(p *Program, lengths ...int) *Batch {
	b := texts(p, lengths...)
	b.Items[0] = nil
	rng := rand.New(rand.NewPCG(9, 9))
	for i, n := range lengths {
		b.Items[0] = append(b.Items[0],
			OutItem{DType: F32, Normalize: true, Offset: int64(b.CuSeqlens[i]) * 4 * blockColumns})
		b.Items[2] = append(b.Items[2],
			OutItem{DType: F32, Dims: 90, Offset: SparseBytes(90, F32) * int64(i)})
		b.Adapter = append(b.Adapter, int32(i%3-1))
		b.Partner = append(b.Partner, int32((i+1)%3-1))
		for j := range n {
			b.Keep = append(b.Keep, uint8((i+j)%2))
		}
	}
	b.CuQueries = []int32{0, 5, 8}
	for range 8 * blockColumns {
		b.Queries = append(b.Queries, float32(rng.NormFloat64()*0.2))
	}
	b.OutBytes = [MaxOutputs]int64{int64(len(b.IDs)) * 4 * blockColumns, int64(4 * len(lengths)),
		SparseBytes(90, F32) * int64(len(lengths))}
	return b
}

func TestGPUHeadsAgreeWithTheCPU(t *testing.T) {
	lengths := []int{3, 20, 9, 1}
	results := func(d *Device, compute Compute, times int) (rows, scores []float32, sparse [][]float32) {
		p, free := newHeads(t, d, compute)
		r := NewRunner(d)
		defer func() { r.Close(); free() }()
		var first [][]byte
		for range times { // launched, captured, replayed
			b := headBatch(p, lengths...)
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			rows, scores, sparse = floatsOf(b.Out[0]), floatsOf(b.Out[1]), nil
			for _, it := range b.Items[2] {
				dense := make([]float32, 90)
				_, columns, values := SparseRow(b.Out[2][it.Offset:], 90, F32)
				for i, v := range floatsOf(values) {
					dense[columns[i]] = v
				}
				sparse = append(sparse, dense)
			}
			if first == nil {
				first = [][]byte{slices.Clone(b.Out[0]), slices.Clone(b.Out[1])}
			} else if !slices.Equal(first[0], b.Out[0]) || !slices.Equal(first[1], b.Out[1]) {
				t.Error("a graph gives other bits")
			}
		}
		return rows, scores, sparse
	}
	wantRows, wantScores, wantSparse := results(openTest(t, Options{Threads: 1}), ComputeF32, 1)
	rows, scores, sparse := results(openCard(t, "9.0", Options{}), ComputeBF16, 3)
	sameDirection(t, rows, wantRows, 0.999)
	for i, want := range wantScores {
		if math.Abs(float64(scores[i]-want)) > 0.05 || (i%3 == 2) != (scores[i] == 0) {
			t.Errorf("late interaction of text %d: %v, expected %v", i, scores[i], want)
		}
		for v := range wantSparse[i] {
			if math.Abs(float64(sparse[i][v]-wantSparse[i][v])) > 0.05 {
				t.Errorf("column %d of text %d: %v, expected %v", v, i, sparse[i][v], wantSparse[i][v])
			}
		}
	}
}
