package task_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/golden"
)

// A whole ModernBERT directory gives the vectors of sentence-transformers for texts, alone and in
// one batch.
func TestModernbertEmbedderEqualsTheLibrary(t *testing.T) {
	const name = "text-modernbert-embed"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "embed", c.Dir, "modernbert_flash",
		"tasks: {encode: {dense: {dim: 64}}}"))
	texts := readTexts[string](t, name)
	want, shape := c.Float32("vectors")
	for _, batch := range [][]string{texts, texts[1:2]} {
		res, err := r.Encode(t.Context(), &Request{Model: "embed", Texts: batch})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range res.Rows {
			at := slices.Index(texts, batch[i])
			if d := golden.Compare(floats(row), want[at*shape[1]:(at+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%q: %v", batch[i], d)
			}
		}
	}
}

// Scores are those of CrossEncoder, which pools this model's tokens by their mean.
func TestModernbertRerankerEqualsTheLibrary(t *testing.T) {
	const name = "text-modernbert-rerank"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "rank", c.Dir, "modernbert_flash_cross_encoder", "tasks: {score: {}}"))
	want, _ := c.Float32("scores")
	for i, pair := range readTexts[[2]string](t, name) {
		res, err := r.Score(t.Context(), &ScoreRequest{Model: "rank", Query: pair[0], Texts: pair[1:]})
		if err != nil {
			if pair[0] == "" {
				continue // a query must not be empty
			}
			t.Fatal(err)
		}
		if math.Abs(res.Scores[0]-float64(want[i])) > 1e-5 {
			t.Errorf("%q: %v, CrossEncoder's score is %v", pair, res.Scores[0], want[i])
		}
	}
}

// Zero-shot classes are those of transformers' pipeline.
func TestModernbertZeroShotEqualsPipeline(t *testing.T) {
	type question struct {
		Text, Template string
		Labels         []string
		Multi          bool `json:"multi_label"`
	}
	const name = "text-modernbert-zero"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "nli", c.Dir, "nli_classification_flash", "tasks: {extract: {}}"))
	scores, _ := c.Float32("scores")
	for _, q := range readTexts[question](t, name) {
		res, err := r.Extract(t.Context(), &ExtractRequest{
			Model:   "nli",
			Texts:   []string{q.Text},
			Labels:  q.Labels,
			Options: map[string]any{"hypothesis_template": q.Template, "multi_label": q.Multi},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, label := range q.Labels {
			if strings.TrimSpace(q.Text) == "" { // see TestZeroShotEqualsPipeline
				break
			}
			at := slices.IndexFunc(res.Found[0].Classes, func(c api.Class) bool { return c.Label == label })
			if at < 0 || math.Abs(res.Found[0].Classes[at].Score-float64(scores[i])) > 1e-5 {
				t.Errorf("%+v: %v; %s has %v", q, res.Found[0].Classes, label, scores[i])
			}
		}
		scores = scores[len(q.Labels):]
	}
}
