package task_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// spansText is a text of a golden case with what the package gliner finds in it.
type spansText struct {
	Text     string   `json:"text"`
	Labels   []string `json:"labels"`
	Requests []struct {
		Threshold  float64 `json:"threshold"`
		FlatNER    bool    `json:"flat_ner"`
		MultiLabel bool    `json:"multi_label"`
		Entities   []struct {
			Text  string  `json:"text"`
			Label string  `json:"label"`
			Score float64 `json:"score"`
			Start int     `json:"start"`
			End   int     `json:"end"`
		} `json:"entities"`
	} `json:"requests"`
}

func spansEntry(t *testing.T, name string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {extract: {}}
profiles:
  default:
    adapter_path: "sie_server.adapters.gliner:GLiNERAdapter"
    max_batch_tokens: 4096
    compute_precision: float32
`, name, golden.Open(t, name).Dir))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Entities are the package's in text, label, places and order, for span and token models.
func TestSpansEqualPackage(t *testing.T) {
	for _, name := range []string{"gliner-bert-span", "gliner-bert-token", "gliner-bert-torch",
		"gliner-modernbert-span", "gliner-modernbert-token", "gliner-deberta-span",
		"gliner-deberta-marker", "gliner-bert-fused"} {
		r := start(t, nil, nil, spansEntry(t, name))
		for _, text := range readTexts[spansText](t, name) {
			for _, q := range text.Requests {
				res, err := r.Extract(t.Context(), &ExtractRequest{Model: name,
					Texts:  []string{"x", text.Text},
					Labels: text.Labels, Options: map[string]any{
						"threshold": q.Threshold, "flat_ner": q.FlatNER, "multi_label": q.MultiLabel,
					}})
				if err != nil || res.Found[1].Err != nil {
					t.Fatal(err, res)
				}
				got := res.Found[1].Entities
				same := len(got) == len(q.Entities)
				for i := 0; same && i < len(got); i++ {
					e := q.Entities[i]
					want := api.Entity{Text: e.Text, Label: e.Label, Start: e.Start, End: e.End,
						Score: got[i].Score}
					same = fmt.Sprint(got[i]) == fmt.Sprint(want) && math.Abs(got[i].Score-e.Score) < 1e-4
				}
				if !same {
					t.Errorf("%s: %q, threshold %v, flat %v, multi %v:\n got %v\nwant %v", name, text.Text,
						q.Threshold, q.FlatNER, q.MultiLabel, got, q.Entities)
				}
			}
		}
	}
}

// A text of several windows has the entities of its parts, at their places; a neighbour that cannot
// be read is answered with an error of its own.
func TestSpansOfLongTexts(t *testing.T) {
	const name = "gliner-bert-span"
	r := start(t, nil, nil, spansEntry(t, name))
	long := strings.Repeat("Angela Merkel lived in Berlin. ", 200)
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: []string{"city", "person"},
		Texts:   []string{long, " \n", strings.Repeat("a b ", 200_000), "Berlin"},
		Options: map[string]any{"threshold": 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.Found[0].Entities); n == 0 {
		t.Error("nothing is found in 1,200 words")
	}
	last := -1
	for _, e := range res.Found[0].Entities {
		if e.Start < last || long[e.Start:e.End] != e.Text {
			t.Fatalf("%v: behind %d, and the text has %q there", e, last, long[e.Start:e.End])
		}
		last = e.Start
	}
	if e := res.Found[1].Err; e == nil || !strings.Contains(e.Message, "items[1]") {
		t.Errorf("a blank text: %v", e)
	}
	if e := res.Found[2].Err; e == nil || e.Code != errs.InputTooLong {
		t.Errorf("more than 128 windows: %v", e)
	}
	alone, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: []string{"city", "person"},
		Texts: []string{"Berlin"}, Options: map[string]any{"threshold": 0.3}})
	if err != nil || fmt.Sprint(alone.Found[0].Entities) != fmt.Sprint(res.Found[3].Entities) {
		t.Errorf("in company %v, alone %v: %v", res.Found[3].Entities, alone, err)
	}
}

// What no model of the family can answer is refused with field, value and bound.
func TestSpansRefuse(t *testing.T) {
	const name = "gliner-bert-span"
	r := start(t, nil, nil, spansEntry(t, name))
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("l", i)
	}
	for what, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string
	}{
		"no labels":      {nil, nil, "requires labels"},
		"blank":          {[]string{"a", " "}, nil, "params.labels[1] is blank"},
		"twice":          {[]string{"a", "b", "a"}, nil, "params.labels[0] again"},
		"129 characters": {[]string{strings.Repeat("é", 129)}, nil, "at most 128"},
		"a marker":       {[]string{"a <<ENT>> b"}, nil, "<<ENT>>"},
		"1,001 labels":   {many, nil, "1000"},
		"a long prompt":  {many[:900], nil, "max_prompt_tokens"},
		"threshold 1.5":  {[]string{"a"}, map[string]any{"threshold": 1.5}, "from 0 to 1"},
		"threshold NaN":  {[]string{"a"}, map[string]any{"threshold": math.NaN()}, "threshold"},
		"relation labels": {[]string{"a"}, map[string]any{"relation_labels": []any{"r"}},
			"finds no relations"},
		"an option":        {[]string{"a"}, map[string]any{"label_groups": map[string]any{}}, "label_groups"},
		"no room for text": {many[:80], nil, "none are left for the text"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: []string{"Berlin"},
			Labels: c.labels, Options: c.options})
		if e := errs.As(err); e == nil || e.Info().Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v; want a 400 with %q", what, err, c.want)
		}
	}
}
