package arch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// unitRows returns the golden's token vectors of each sequence, divided by their norm, in float64.
func unitRows(c *golden.Case) [][][]float64 {
	v, shape := c.Float32("vectors")
	cu, width := c.Int32("cu_seqlens"), shape[1]
	var seqs [][][]float64
	for s := range len(cu) - 1 {
		var rows [][]float64
		for at := int(cu[s]); at < int(cu[s+1]); at++ {
			row, sum := make([]float64, width), 0.0
			for i, x := range v[at*width : (at+1)*width] {
				row[i] = float64(x)
				sum += row[i] * row[i]
			}
			for i := range row {
				row[i] /= math.Sqrt(sum)
			}
			rows = append(rows, row)
		}
		seqs = append(seqs, rows)
	}
	return seqs
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// Late interaction of every sequence with two queries, one of which has a single row.
func TestMaxSimOfAModel(t *testing.T) { onEach(t, checkMaxSim) }

func checkMaxSim(t *testing.T, dev *engine.Device, compute engine.Compute) {
	c := golden.Open(t, "colbert-linear")
	seqs := unitRows(c)
	m, r := load(t, dev, c.Dir, Options{Task: ColBERT, Compute: compute})
	p := record(t, m, Want{Give: Give(OutMaxSim)})
	if p.Caps().MaxQueryRows != minQueryRows {
		t.Errorf("room for %d rows of queries", p.Caps().MaxQueryRows)
	}
	b := goldenBatch(c)
	queries := [][][]float64{seqs[0], seqs[3][2:3]}
	run := engine.Batch{
		Program:   p,
		CuQueries: []int32{0, int32(len(queries[0])), int32(len(queries[0]) + 1)},
		Partner:   []int32{0, 1, 0, 1, -1},
	}
	for _, q := range queries {
		for _, row := range q {
			for _, x := range row {
				run.Queries = append(run.Queries, float32(x))
			}
		}
	}
	var want []float32
	for s, partner := range run.Partner {
		var sum float64
		for _, q := range queries[max(partner, 0)] {
			best := math.Inf(-1)
			for _, d := range seqs[s] {
				best = max(best, dot(q, d))
			}
			sum += best
		}
		if partner < 0 {
			sum = 0
		}
		want = append(want, float32(sum))
	}
	compareHead(t, "maxsim", compute, values(t, r, run, b, 0, b.seqs()), want)
}

// Folding uses the tables of runtime/fold. A query's MUVERA, summed over the parts of the space, is
// the sum of its tokens. An SMVE holds the largest products with the anchors.
func TestFoldedOutputs(t *testing.T) { onEach(t, checkFolded) }

func checkFolded(t *testing.T, dev *engine.Device, compute engine.Compute) {
	c := golden.Open(t, "colbert-linear")
	seqs := unitRows(c)
	muvera := fold.Muvera{Repetitions: 3, Bits: 2, Seed: 42}
	smve := fold.SMVE{Repetitions: 2, Width: 50, Top: 50, Seed: 42}
	anchors, err := smve.Tables(24)
	if err != nil {
		t.Fatal(err)
	}
	m, r := load(t, dev, c.Dir, Options{Task: ColBERT, Compute: compute})
	before := m.Bytes()
	p := record(t, m, Want{Muvera: muvera, SMVE: smve, FoldQuery: true})
	with := m.Bytes()
	again := record(t, m, Want{Muvera: muvera, SMVE: smve})
	if with-before < 3*2*24*4+100*24*4 || m.Bytes() != with {
		t.Errorf("%d bytes, %d with tables, %d with those of another program that has the same",
			before, with, m.Bytes())
	}
	if len(p.Outputs()) != 2 || len(again.Outputs()) != 2 {
		t.Fatalf("%d and %d outputs", len(p.Outputs()), len(again.Outputs()))
	}
	b := goldenBatch(c)
	dims := muvera.Dims(24)
	run := engine.Batch{Program: p}
	size := engine.SparseBytes(smve.Dims(), engine.F32)
	for s := range b.seqs() {
		run.Items[0] = append(run.Items[0], engine.OutItem{DType: engine.F32, Offset: int64(s * dims * 4)})
		run.Items[1] = append(run.Items[1],
			engine.OutItem{DType: engine.F32, Dims: smve.Dims(), Offset: int64(s) * size})
	}
	run.OutBytes[1] = int64(b.seqs()) * size
	got := values(t, r, run, b, 0, b.seqs()*dims)
	for s, rows := range seqs {
		sum := make([]float64, 24)
		for _, row := range rows {
			for i, x := range row {
				sum[i] += x
			}
		}
		for rep := range muvera.Repetitions {
			folded, want := make([]float32, 24), make([]float32, 24)
			for i, x := range got[s*dims+rep*dims/3 : s*dims+(rep+1)*dims/3] {
				folded[i%24] += x
			}
			for i := range want {
				want[i] = float32(sum[i])
			}
			compareHead(t, fmt.Sprintf("muvera of sequence %d, repetition %d", s, rep), compute, folded, want)
		}
	}
	sparse := spread(t, runAgain(t, r, run, b), b.seqs(), smve.Dims())
	for s, rows := range seqs {
		want := make([]float32, smve.Dims())
		for a := range want {
			anchor := make([]float64, 24)
			for i := range anchor {
				anchor[i] = float64(anchors.Anchors[a*24+i])
			}
			for _, row := range rows {
				want[a] += float32(dot(row, anchor))
			}
		}
		compareHead(t, fmt.Sprint("smve of sequence ", s), compute, sparse[s*len(want):(s+1)*len(want)], want)
	}
}

// runAgain runs b and returns output 1.
func runAgain(t *testing.T, r *engine.Runner, run engine.Batch, b packed) []byte {
	t.Helper()
	run.IDs, run.TypeIDs, run.CuSeqlens, run.Out = b.ids, b.types, b.cu, [engine.MaxOutputs][]byte{}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(run.Out[1])
}
