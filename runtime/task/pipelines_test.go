package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/golden"
)

// Entities are those of transformers' pipeline with the aggregation "simple", counted in code
// points. The texts have emoji whose bytes are tokens of different entities, combining marks, NUL,
// line ends, and one text is longer than the model's limit.
func TestTagsEqualPipeline(t *testing.T) {
	c := golden.Open(t, "pipeline-tags")
	r := start(t, nil, nil, entry(t, "tags", c.Dir, "token_classification", "tasks: {extract: {}}"))
	scores, _ := c.Float32("scores")
	var texts []string
	var want [][]api.Entity
	for _, row := range readTexts[[2]json.RawMessage](t, "pipeline-tags") {
		var text string
		var found [][3]any
		if err := json.Unmarshal(row[0], &text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(row[1], &found); err != nil {
			t.Fatal(err)
		}
		var list []api.Entity
		for _, e := range found {
			from, to := int(e[1].(float64)), int(e[2].(float64))
			list = append(list, api.Entity{
				Text:  string([]rune(text)[from:to]),
				Label: e[0].(string),
				Start: from,
				End:   to,
				Score: float64(scores[0]),
			})
			scores = scores[1:]
		}
		texts, want = append(texts, text), append(want, list)
	}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "tags", Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range res.Found {
		if !slices.EqualFunc(item.Entities, want[i], func(a, b api.Entity) bool {
			return a.Text == b.Text && a.Label == b.Label && a.Start == b.Start && a.End == b.End &&
				math.Abs(a.Score-b.Score) < 1e-5
		}) {
			t.Errorf("%q:\n got %v\nwant %v", texts[i], item.Entities, want[i])
		}
		if item.Err != nil {
			t.Errorf("%q: %v", texts[i], item.Err)
		}
	}
	// A score that equals the threshold is kept.
	first := res.Found[0].Entities[0]
	for above, threshold := range []float64{first.Score, math.Nextafter(first.Score, 2)} {
		res, err := r.Extract(t.Context(),
			&ExtractRequest{Model: "tags", Texts: texts[:1], Options: map[string]any{"threshold": threshold}})
		if err != nil || slices.ContainsFunc(res.Found[0].Entities, func(e api.Entity) bool {
			return e.Start == first.Start
		}) != (above == 0) {
			t.Errorf("threshold %v: %v, %v", threshold, res.Found[0].Entities, err)
		}
	}
	// Labels and threshold together select entities.
	res, err = r.Extract(t.Context(), &ExtractRequest{
		Model: "tags", Texts: texts, Labels: []string{"loc"}, Options: map[string]any{"threshold": 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for i, item := range res.Found {
		for _, e := range want[i] {
			if e.Label == "LOC" && e.Score >= 0.5 {
				kept++
			}
		}
		kept -= len(item.Entities)
		if slices.ContainsFunc(item.Entities,
			func(e api.Entity) bool { return e.Label != "LOC" || e.Score < 0.5 }) || kept != 0 {
			t.Errorf("%q: %v of %v", texts[i], item.Entities, want[i])
		}
	}
}

// Zero-shot scores are those of transformers' pipeline: for one label or several, braces and commas
// in labels, and entailment at any place among the model's labels.
func TestZeroShotEqualsPipeline(t *testing.T) {
	type question struct {
		Text, Template string
		Labels, Names  []string
		Multi          bool `json:"multi_label"`
	}
	const name = "pipeline-zero-shot"
	scores, _ := golden.Open(t, name).Float32("scores")
	rigs := map[string]*rig{}
	for _, q := range readTexts[question](t, name) {
		key := fmt.Sprint(q.Names)
		if rigs[key] == nil {
			rigs[key] = start(t, nil, nil, entry(t, "nli", relabelled(t, name, q.Names),
				"nli_classification_flash", "tasks: {extract: {}}"))
		}
		res, err := rigs[key].Extract(t.Context(), &ExtractRequest{
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
		if strings.TrimSpace(q.Text) == "" { // which the pipeline answers
			if e := res.Found[0].Err; e == nil || !strings.Contains(e.Message, "'items[0]' is blank") {
				t.Errorf("%+v: %v, %v", q, res.Found[0].Classes, e)
			}
			continue
		}
		got := res.Found[0].Classes
		if slices.SortStableFunc(want, byScore); !slices.EqualFunc(got, want, func(a, b api.Class) bool {
			return a.Label == b.Label && math.Abs(a.Score-b.Score) < 1e-5
		}) {
			t.Errorf("%+v:\n got %v\nwant %v", q, got, want)
		}
	}
	if len(rigs) != 3 {
		t.Errorf("%d orders of the model's labels", len(rigs))
	}
}

// Of a pair that is too long the text alone is cut, as in the pipeline, also where the hypothesis
// is the longer one: the answer is that of as much of the text as fits beside all of the
// hypothesis. Where it leaves the text no token, the longer of both is cut.
func TestZeroShotCutsTheText(t *testing.T) {
	const name = "pipeline-zero-shot" // it reads 40 tokens
	r := start(t, nil, nil, entry(t, "nli", golden.Open(t, name).Dir, "nli_classification_flash",
		"tasks: {extract: {}}"))
	score := func(label string, digits int, policy string) (float64, error) { // each is a token
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Labels: []string{label},
			Texts:   []string{strings.Repeat("7", digits)},
			Options: map[string]any{"hypothesis_template": "{}", "overflow_policy": policy}})
		if err != nil {
			return 0, err
		}
		if e := res.Found[0].Err; e != nil {
			return 0, e
		}
		return res.Found[0].Classes[0].Score, nil
	}
	for _, cats := range []int{2, 20, 30} {
		label := strings.TrimSpace(strings.Repeat("cat ", cats))
		fits := 0
		for fits < 60 {
			if _, err := score(label, fits+1, "error"); err != nil {
				break
			}
			fits++
		}
		if fits == 0 || fits == 60 {
			t.Fatalf("%d digits beside %q fit", fits, label)
		}
		whole, err := score(label, fits, "error")
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range []int{1, 100} {
			cut, err := score(label, fits+more, "truncate_text")
			if err != nil || math.Abs(cut-whole) > 1e-6 {
				t.Errorf("%d digits beside %q: %v, %v; want that of %d, %v", fits+more, label, cut, err,
					fits, whole)
			}
		}
	}
	full := strings.TrimSpace(strings.Repeat("sea ", 32)) // 127 characters
	if _, err := score(full, 100, "truncate_text"); err != nil {
		t.Errorf("a hypothesis that leaves a text no token: %v", err)
	}
	if _, err := score(full, 100, "error"); err == nil {
		t.Error("such a hypothesis, and nothing may be cut")
	}
}

func byScore(a, b api.Class) int {
	switch {
	case a.Score > b.Score:
		return -1
	case a.Score < b.Score:
		return 1
	}
	return 0
}
