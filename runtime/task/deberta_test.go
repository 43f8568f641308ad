package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/golden"
)

// A DeBERTa directory whose tokenizer is spm.model and added_tokens.json alone gives the scores of
// CrossEncoder, as mxbai-rerank v1 does.
func TestDebertaRerankerEqualsTheLibrary(t *testing.T) {
	const name = "text-deberta-rerank"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "rank", c.Dir, "cross_encoder", "tasks: {score: {}}"))
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

// Zero-shot classes are those of transformers' pipeline, with "ENTAILMENT" in the middle.
func TestDebertaZeroShotEqualsPipeline(t *testing.T) {
	type question struct {
		Text, Template string
		Labels         []string
		Multi          bool `json:"multi_label"`
	}
	const name = "text-deberta-zero"
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
		var want []api.Class
		for i, l := range q.Labels {
			want = append(want, api.Class{Label: l, Score: float64(scores[i])})
		}
		scores = scores[len(q.Labels):]
		got := res.Found[0].Classes
		if slices.SortStableFunc(want, byScore); !slices.EqualFunc(got, want, func(a, b api.Class) bool {
			return a.Label == b.Label && math.Abs(a.Score-b.Score) < 1e-5
		}) {
			t.Errorf("%+v:\n got %v\nwant %v", q, got, want)
		}
	}
}

// A thousand labels of one text are a thousand pairs, and each has the score that it has alone.
func TestDebertaThousandLabels(t *testing.T) {
	c := golden.Open(t, "text-deberta-zero")
	r := start(t, nil, nil, entry(t, "nli", c.Dir, "nli_classification_flash", "tasks: {extract: {}}"))
	labels := make([]string, 1000)
	for i := range labels {
		labels[i] = fmt.Sprintf("%c%c", 'a'+i%26, 'a'+i/26%26) + []string{"", " cat"}[i/676]
	}
	classes := func(labels ...string) []api.Class {
		res, err := r.Extract(t.Context(), &ExtractRequest{
			Model: "nli", Texts: []string{"the cat sat"}, Labels: labels,
			Options: map[string]any{"multi_label": true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Found[0].Classes
	}
	all := classes(labels...)
	if len(all) != len(labels) {
		t.Fatalf("%d classes", len(all))
	}
	for _, label := range []string{labels[0], labels[499], labels[999]} {
		one := classes(label)[0]
		if !slices.Contains(all, one) {
			t.Errorf("%v alone is not among %d", one, len(all))
		}
	}
}

// Entities are those of transformers' pipeline, with places in the text though SentencePiece
// squeezes its spaces.
func TestDebertaTagsEqualPipeline(t *testing.T) {
	const name = "text-deberta-tags"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "tags", c.Dir, "token_classification", "tasks: {extract: {}}"))
	scores, _ := c.Float32("scores")
	for _, row := range readTexts[[2]json.RawMessage](t, name) {
		var text string
		var found [][3]any
		if err := json.Unmarshal(row[0], &text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(row[1], &found); err != nil {
			t.Fatal(err)
		}
		var want []api.Entity
		for i, e := range found {
			from, to := int(e[1].(float64)), int(e[2].(float64))
			want = append(want, api.Entity{Text: string([]rune(text)[from:to]), Label: e[0].(string),
				Start: from, End: to, Score: float64(scores[i])})
		}
		scores = scores[len(found):]
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "tags", Texts: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Found[0].Entities; !slices.EqualFunc(got, want, func(a, b api.Entity) bool {
			return a.Text == b.Text && a.Label == b.Label && a.Start == b.Start && a.End == b.End &&
				math.Abs(a.Score-b.Score) < 1e-5
		}) {
			t.Errorf("%q:\n got %v\nwant %v", text, got, want)
		}
	}
}
