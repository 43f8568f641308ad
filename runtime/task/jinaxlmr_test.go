package task_test

import (
	"math"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A directory as jina-reranker-v2 has it gives CrossEncoder's scores for pairs.
func TestJinaRerankerEqualsTheLibrary(t *testing.T) {
	const name = "classify-jxlmr"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "rank", c.Dir, "jina_flash_cross_encoder", "tasks: {score: {}}"))
	want, _ := c.Float32("pair_scores")
	for i, pair := range readTexts[[2]string](t, name) {
		if pair[0] == "" {
			continue // a query must not be empty
		}
		res, err := r.Score(t.Context(), &ScoreRequest{Model: "rank", Query: pair[0], Texts: pair[1:]})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(res.Scores[0]-float64(want[i])) > 1e-5 {
			t.Errorf("%q: %v, CrossEncoder's score is %v", pair, res.Scores[0], want[i])
		}
	}
}
