package arch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var relexCases = []string{"relex-span", "relex-token", "relex-gcn", "relex-dot", "relex-bilinear"}

// relexText is one text of a golden case with its candidates, and where its pairs are.
type relexText struct {
	glinerText
	relations                       engine.Places
	spans                           engine.Places
	firstSpan, firstPair, firstNear int
}

func relexTexts(c *golden.Case, width int) (texts []relexText) {
	relations, cuRelations := c.Int32("relations"), c.Int32("cu_relations")
	begin, end, cuSpans := c.Int32("begin"), c.Int32("end"), c.Int32("cu_spans")
	pair, near := 0, 0
	for i, text := range glinerTexts(c, width) {
		r, s, e := relations[cuRelations[i]:cuRelations[i+1]], cuSpans[i], cuSpans[i+1]
		texts = append(texts, relexText{
			glinerText: text, relations: engine.Places{First: r},
			spans:     engine.Places{First: begin[s:e], Last: end[s:e]},
			firstSpan: int(s), firstPair: pair, firstNear: near,
		})
		n := int(e - s)
		pair, near = pair+n*n*len(r), near+n*n
	}
	return texts
}

// relexBatch packs texts with their relations as markers.
func relexBatch(texts ...relexText) engine.Batch {
	var plain []glinerText
	spans := engine.Places{Cu: []int32{0}}
	for _, t := range texts {
		t.markers = t.relations
		plain = append(plain, t.glinerText)
		spans.First, spans.Last = append(spans.First, t.spans.First...), append(spans.Last, t.spans.Last...)
		spans.Cu = append(spans.Cu, int32(len(spans.First)))
	}
	b := glinerBatch(plain...)
	b.Spans = spans
	return b
}

// related runs texts as one batch and returns the logits of all pairs of each, in the order of the
// golden data, and the rows of OutNodes.
func related(t *testing.T, m *Model, r *engine.Runner, texts ...relexText) (pairs, nodes [][]float32) {
	t.Helper()
	program, err := m.Record(Want{Give: m.GLiNER.Relations.Gives()})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	run := relexBatch(texts...)
	run.Program = program
	outputs := program.Outputs()
	for _, text := range texts {
		n, relations := len(text.spans.First), len(text.relations.First)
		room := max(1, n*(n+1)/2*relations)
		for o := range 2 {
			run.Items[o] = append(run.Items[o], engine.OutItem{DType: engine.F32, Dims: room,
				Threshold: float32(math.Inf(-1)), Offset: run.OutBytes[o]})
			run.OutBytes[o] += engine.FoundBytes(&outputs[o], room)
		}
	}
	if a := m.GLiNER.Relations.Adjacency; a != nil {
		run.OutBytes[2] = int64(4 * len(run.Spans.First) * a.Columns)
	}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	rows := floats(run.Out[2])
	for i, text := range texts {
		n, relations := len(text.spans.First), len(text.relations.First)
		logits, seen := make([]float32, n*n*relations), 0
		for o := range 2 {
			count, list := engine.Spans(run.Out[o][run.Items[o][i].Offset:], n*(n+1)/2*relations)
			if count != n*(n+1)/2*relations {
				t.Fatalf("text %d: %d scores of %d candidates and %d relations", i, count, n, relations)
			}
			for _, s := range list {
				head, tail := int(s.First), int(s.Last)
				if o == 1 {
					head, tail = tail, head
				}
				if head == tail {
					continue // the package has no pairs of these
				}
				logits[(head*n+tail)*relations+int(s.Label)] = s.Logit
				seen++
			}
		}
		if seen != n*(n-1)*relations {
			t.Fatalf("text %d: %d scores of pairs", i, seen)
		}
		pairs = append(pairs, logits)
		if a := m.GLiNER.Relations.Adjacency; a != nil {
			nodes = append(nodes, rows[:n*a.Columns])
			rows = rows[n*a.Columns:]
		}
	}
	return pairs, nodes
}

// TestRelexEqualsPackage compares the states of candidates, the logits of entities and of every
// pair of candidates, and their adjacency with the package's.
func TestRelexEqualsPackage(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range relexCases {
			t.Run(name, func(t *testing.T) { checkRelex(t, dev, golden.Open(t, name), compute) })
		}
	})
}

func checkRelex(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	t.Helper()
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	want, _ := c.Float32("logits")
	compareValues(t, "logits", compute, allLogits(t, m, r, c), want)
	checkCandidates(t, dev, m, r, c, compute)
	pairs, nodes := related(t, m, r, relexTexts(c, 1)...)
	want, _ = c.Float32("pairs")
	compareValues(t, "pairs", compute, slices.Concat(pairs...), want)
	a := m.GLiNER.Relations.Adjacency
	if a == nil {
		return
	}
	var adjacency []float32
	for i, rows := range nodes {
		adjacency = append(adjacency, a.Matrix(rows, len(relexTexts(c, 1)[i].spans.First))...)
	}
	want, _ = c.Float32("adjacency")
	compareValues(t, "adjacency", compute, adjacency, want)
}

// checkCandidates compares the states of candidates.
func checkCandidates(
	t *testing.T, dev *engine.Device, m *Model, runner *engine.Runner, c *golden.Case, compute engine.Compute,
) {
	t.Helper()
	caps := m.caps
	caps.MaxSpans = batchCandidates
	r := &recording{Recorder: dev.Record(caps), model: m, pass: pass{keep: engine.PoolMean}}
	r.x = m.encoder.forward(r.Recorder, r.pass)
	r.OutputValues(m.gliner.candidates(r))
	program, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	run := relexBatch(relexTexts(c, 1)...)
	run.Program = program
	want, _ := c.Float32("states")
	run.OutBytes[0] = int64(4 * len(want))
	if err := runner.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	compareValues(t, "states", compute, floats(run.Out[0]), want)
}

// TestRelexAlone checks that the pairs of a text and their adjacency are the same bit for bit
// alone, in company and in another order.
func TestRelexAlone(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range relexCases {
			checkRelexAlone(t, dev, golden.Open(t, name), compute)
		}
	})
}

func checkRelexAlone(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	t.Helper()
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	texts := relexTexts(c, 1)
	slices.Reverse(texts)
	pairs, nodes := related(t, m, r, texts...)
	for i, text := range texts {
		alone, ofAlone := related(t, m, r, text)
		if fmt.Sprint(alone[0]) != fmt.Sprint(pairs[i]) ||
			nodes != nil && fmt.Sprint(ofAlone[0]) != fmt.Sprint(nodes[i]) {
			t.Errorf("%s: text %d is related otherwise alone", c.Dir, i)
		}
	}
}

// TestAdjacencyByHand computes a graph convolution of two candidates in the plainest way.
func TestAdjacencyByHand(t *testing.T) {
	a := &GLiNERAdjacency{Columns: 4, state: 2, bias: []float32{-0.5, 0.25},
		project: affine{in: 2, out: 2, weight: []float32{1, 2, -1, 0.5}, bias: []float32{0.1, -0.2}}}
	nodes := []float32{1, 0.5, 0.75, -2, -0.5, 2, 1.5, 1}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	s := [2][2]float64{{1, 0.5}, {-0.5, 2}}
	g := [2][2]float64{{0.75, -2}, {1.5, 1}}
	var m, z [2][2]float64
	var d [2]float64
	for i := range 2 {
		for j := range 2 {
			m[i][j] = sigmoid(s[i][0]*s[j][0] + s[i][1]*s[j][1])
			if i == j {
				m[i][j]++
			}
			d[i] += m[i][j]
		}
	}
	for i := range 2 {
		var h [2]float64
		for c := range 2 {
			for j := range 2 {
				h[c] += m[i][j] / math.Sqrt(d[i]*d[j]) * g[j][c]
			}
			h[c] = max(0, h[c]+[]float64{-0.5, 0.25}[c])
		}
		z[i] = [2]float64{h[0] + 2*h[1] + 0.1, -h[0] + 0.5*h[1] - 0.2}
	}
	got := a.Matrix(nodes, 2)
	for i := range 2 {
		for j := range 2 {
			if want := sigmoid(z[i][0]*z[j][0] + z[i][1]*z[j][1]); math.Abs(float64(got[2*i+j])-want) > 1e-6 {
				t.Errorf("%d, %d: %v, want %v", i, j, got[2*i+j], want)
			}
		}
	}
}
