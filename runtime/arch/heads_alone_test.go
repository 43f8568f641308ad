package arch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// headModels has golden models of every head, behind every architecture that has it.
var headModels = map[string]struct {
	task    Task
	answers []int32
	odd     bool // its heads have a width without a GPU kernel
}{
	"classify-bert": {task: Classify}, "classify-modernbert": {task: Classify},
	"classify-modernbert-mean": {task: Classify}, "classify-qwen3": {task: Classify},
	"classify-qwen2": {task: Classify}, "classify-eurobert": {task: Classify},
	"classify-gte": {task: Classify}, "classify-nomic": {task: Classify}, "classify-mpnet": {task: Classify},
	"classify-jina": {task: Classify}, "classify-jina-code": {task: Classify},
	"classify-jxlmr": {task: Classify}, "tag-bert": {task: Tag}, "tag-modernbert": {task: Tag},
	"tag-qwen3": {task: Tag}, "tag-eurobert": {task: Tag}, "tag-gte": {task: Tag}, "tag-nomic": {task: Tag},
	"tag-mpnet": {task: Tag}, "splade-bert": {task: Splade}, "masked-modernbert": {task: Splade},
	"masked-gte-untied": {task: Splade}, "masked-nomic": {task: Splade}, "masked-eurobert": {task: Splade},
	"masked-mpnet": {task: Splade}, "masked-jina": {task: Splade}, "colbert-dense": {task: ColBERT},
	"colbert-jxlmr": {task: ColBERT}, "judge-qwen3": {task: Judge, answers: []int32{513, 651}},
	"judge-mxbai": {task: Judge, answers: []int32{16, 15}, odd: true}, "judge-chat": {task: Judge},
}

// A text's logits, tags, sparse weights, token vectors and answers have the same bits alone, in any
// batch and order, and with any number of threads.
func TestHeadsAlone(t *testing.T) {
	for _, o := range isas {
		single := o
		single.Threads = 1
		many, one := open(t, o), open(t, single)
		for _, compute := range computes(t, many) {
			t.Run(fmt.Sprintf("%s/%s", o.ISA, compute), func(t *testing.T) {
				for name := range headModels {
					checkHeadAlone(t, many, one, compute, name)
				}
			})
		}
	}
}

// checkHeadAlone sees that each text of a golden model has the same bits from its head alone and in
// batches, on the devices many and one.
func checkHeadAlone(t *testing.T, many, one *engine.Device, compute engine.Compute, name string) {
	t.Helper()
	g := golden.Open(t, name)
	o := Options{Task: headModels[name].task, Compute: compute, Answers: headModels[name].answers}
	m, r := load(t, many, g.Dir, o)
	m1, r1 := load(t, one, g.Dir, o)
	b := asRead(m, goldenBatch(g))
	alone := make([][]float32, b.seqs())
	for i := range alone {
		alone[i] = headRows(t, m, r, b.pick(i))[0]
		if err := sameBits(headRows(t, m1, r1, b.pick(i))[0], alone[i]); err != nil {
			t.Errorf("%s: text %d alone, the other device: %v", name, i, err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 3 {
		order := rng.Perm(b.seqs())
		order = append(order, order[rng.IntN(len(order))]) // one of them twice
		got, got1 := headRows(t, m, r, b.pick(order...)), headRows(t, m1, r1, b.pick(order...))
		for at, i := range order {
			if err := sameBits(got[at], alone[i]); err != nil {
				t.Fatalf("%s, round %d: text %d at place %d: %v", name, round, i, at, err)
			}
			if err := sameBits(got1[at], alone[i]); err != nil {
				t.Fatalf("%s, round %d, the other device: text %d at place %d: %v", name, round, i, at, err)
			}
		}
	}
}

// headRows returns what the model's own program gives for each text of a batch.
func headRows(t *testing.T, m *Model, r *engine.Runner, b packed) [][]float32 {
	t.Helper()
	run := engine.Batch{Program: m.Program()}
	width, tokens := 0, false
	switch m.Task {
	case Splade:
		width = m.Vocab
	case Classify:
		width = len(m.Labels)
	case Judge:
		width = len(m.Answers)
	case Tag:
		width, tokens = len(m.Labels), true
	case ColBERT:
		width, tokens = m.TokenDim, true
		for seq := range b.seqs() {
			run.Items[0] = append(run.Items[0],
				engine.OutItem{DType: engine.F32, Offset: int64(b.cu[seq]) * int64(width) * 4})
		}
	}
	rows := b.seqs()
	if tokens {
		rows = len(b.ids)
	}
	var all []float32
	if m.Task == Splade {
		all = sparseRows(t, r, m.Program(), b, width)
	} else {
		all = values(t, r, run, b, 0, rows*width)
	}
	out := make([][]float32, b.seqs())
	for i := range out {
		from, to := i, i+1
		if tokens {
			from, to = int(b.cu[i]), int(b.cu[i+1])
		}
		out[i] = all[from*width : to*width]
	}
	return out
}
