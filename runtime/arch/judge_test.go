package arch

import (
	"math"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// The logits of the answers at the last token give the scores of the models' own pipelines: one
// logit, the difference of two, or the sigmoid of that.
func TestAnswersOfJudges(t *testing.T) {
	dev := open(t, engine.Options{})
	for _, c := range []struct {
		name           string
		answers, found []int32 // those asked for, and those of the model
		score          func(logits []float32) float64
	}{
		{"judge-chat", nil, []int32{513}, func(z []float32) float64 { return float64(z[0]) }},
		{"judge-mxbai", []int32{16, 15}, []int32{16, 15},
			func(z []float32) float64 { return float64(z[0]) - float64(z[1]) }},
		{"judge-qwen3", []int32{513, 651}, []int32{513, 651},
			func(z []float32) float64 { return 1 / (1 + math.Exp(float64(z[1])-float64(z[0]))) }},
	} {
		g := golden.Open(t, c.name)
		m, r := load(t, dev, g.Dir, Options{Task: Judge, Compute: engine.ComputeF32, Answers: c.answers})
		if !slices.Equal(m.Answers, c.found) {
			t.Fatalf("%s: answers %d, expected %d", c.name, m.Answers, c.found)
		}
		want, _ := g.Float32("scores")
		b, n := goldenBatch(g), len(m.Answers)
		got := values(t, r, engine.Batch{Program: m.Program()}, b, 0, n*b.seqs())
		whole, _ := load(t, dev, g.Dir,
			Options{Task: Judge, Compute: engine.ComputeF32, Answers: c.answers, NoPruning: true})
		if err := sameBits(values(t, r, engine.Batch{Program: whole.Program()}, b, 0, len(got)),
			got); err != nil {
			t.Errorf("%s: pruning changes answers: %v", c.name, err)
		}
		for i, score := range want {
			if s := c.score(got[i*n : (i+1)*n]); math.Abs(s-float64(score)) > 1e-5 {
				t.Errorf("%s, text %d: %v, expected %v", c.name, i, s, score)
			}
		}
	}
}

// The module of a judge names the token of yes before that of no.
func TestAnswersOfAModule(t *testing.T) {
	dir := edit(t, golden.Open(t, "judge-chat").Dir, "1_LogitScore/"+configFile,
		map[string]any{"false_token_id": 651})
	m, _ := load(t, open(t, engine.Options{Threads: 1}), dir, Options{Task: Judge})
	if want := []int32{513, 651}; !slices.Equal(m.Answers, want) {
		t.Errorf("answers %d, expected %d", m.Answers, want)
	}
}
