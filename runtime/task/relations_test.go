package task_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// relationsText is a text of a golden case with what the package gliner finds in it.
type relationsText struct {
	Text      string   `json:"text"`
	Labels    []string `json:"labels"`
	Relations []string `json:"relations"`
	Requests  []struct {
		Threshold         float64 `json:"threshold"`
		RelationThreshold float64 `json:"relation_threshold"`
		FlatNER           bool    `json:"flat_ner"`
		MultiLabel        bool    `json:"multi_label"`
		Entities          []struct {
			Text  string  `json:"text"`
			Label string  `json:"label"`
			Score float64 `json:"score"`
			Start int     `json:"start"`
			End   int     `json:"end"`
		} `json:"entities"`
		Relations []struct {
			Head     string  `json:"head"`
			Tail     string  `json:"tail"`
			Relation string  `json:"relation"`
			Score    float64 `json:"score"`
		} `json:"relations"`
	} `json:"requests"`
}

// sameRelations reports whether relations are equal but for their scores, which are within 1e-4.
func sameRelations(got, want []api.Relation) bool {
	return slices.EqualFunc(got, want, func(a, b api.Relation) bool {
		near := math.Abs(a.Score-b.Score) < 1e-4
		a.Score = b.Score
		return near && a == b
	})
}

// Entities and relations are the package's in text, label and order, for models of spans and of
// tokens, with each adjacency and without.
func TestRelationsEqualPackage(t *testing.T) {
	for name, most := range map[string]int{
		"relex-span": 8, "relex-token": 8, "relex-gcn": 8, "relex-dot": 4, "relex-bilinear": 4,
	} {
		r := start(t, nil, nil, spansEntry(t, name))
		related := 0
		for _, text := range readTexts[relationsText](t, name) {
			for _, q := range text.Requests {
				res, err := r.Extract(t.Context(), &ExtractRequest{Model: name,
					Texts:  []string{"x", text.Text},
					Labels: text.Labels, Options: map[string]any{
						"threshold": q.Threshold, "flat_ner": q.FlatNER, "multi_label": q.MultiLabel,
						"relation_labels": anyOf(text.Relations), "relation_threshold": q.RelationThreshold,
					}})
				if err != nil || res.Found[1].Err != nil {
					t.Fatal(err, res)
				}
				var entities []api.Entity
				for i, e := range q.Entities {
					score := e.Score
					if got := res.Found[1].Entities; i < len(got) && math.Abs(got[i].Score-e.Score) < 1e-4 {
						score = got[i].Score
					}
					entities = append(entities,
						api.Entity{Text: e.Text, Label: e.Label, Start: e.Start, End: e.End, Score: score})
				}
				if got := res.Found[1].Entities; fmt.Sprint(got) != fmt.Sprint(entities) {
					t.Errorf("%s: %q, threshold %v: entities\n got %v\nwant %v", name, text.Text, q.Threshold,
						got, entities)
				}
				var want []api.Relation
				for _, x := range q.Relations {
					want = append(want, api.Relation(x))
				}
				related += len(want)
				if got := res.Found[1].Relations; !sameRelations(got, want) {
					t.Errorf("%s: %q, thresholds %v and %v, flat %v, multi %v:\n got %v\nwant %v", name, text.Text,
						q.Threshold, q.RelationThreshold, q.FlatNER, q.MultiLabel, got, want)
				}
			}
		}
		if related < most {
			t.Errorf("%s: %d relations in all: the case proves little", name, related)
		}
	}
}

func anyOf(list []string) (out []any) {
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// The relations of a text do not depend on its company, on spaces around the names of relations, or
// on how often a text is asked about. The model reads labels in the request's order. Without names
// there are no relations, and the entities are then those of a prompt without them.
func TestRelationsAlone(t *testing.T) {
	const name = "relex-span"
	r := start(t, nil, nil, spansEntry(t, name))
	texts := readTexts[relationsText](t, name)
	var all []string
	for _, text := range texts {
		all = append(all, text.Text)
	}
	all = append(all, strings.Repeat(texts[0].Text+" ", 60))
	ask := func(labels, relations []string, texts ...string) []string {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: texts, Labels: labels,
			Options: map[string]any{"threshold": 0.15, "relation_threshold": 0.02,
				"relation_labels": anyOf(relations)}})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range res.Found {
			out = append(out, fmt.Sprint(f.Entities, f.Relations, f.Err))
		}
		return out
	}
	labels, relations := []string{"person", "city"}, []string{"lives in", "born in"}
	together := ask(labels, relations, all...)
	for i, text := range all {
		alone := ask(labels, []string{" lives in", "born in\n"}, text)[0]
		if alone != together[i] {
			t.Errorf("%q: alone\n%.300s\nin company\n%.300s", text[:min(len(text), 60)], alone, together[i])
		}
	}
	if slices.Equal(ask([]string{"city", "person"}, relations, all...), together) ||
		slices.Equal(ask(labels, []string{"born in", "lives in"}, all...), together) {
		t.Error("the order of labels or of relations makes no difference")
	}
	marked := ask(labels, relations, "Angela <<REL>> Merkel <<SEP>> <<ENT>> in Berlin")[0]
	if !strings.HasSuffix(marked, "<nil>") {
		t.Errorf("a text with markers: %s", marked)
	}
	plain, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: all, Labels: labels,
		Options: map[string]any{"threshold": 0.15}})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, f := range plain.Found {
		found += len(f.Entities)
		got := ask(labels, nil, all[i])[0]
		if f.Relations != nil || got != fmt.Sprint(f.Entities, f.Relations, f.Err) {
			t.Errorf("%q: %s with an empty list of relations, %v without", all[i], got, f)
		}
	}
	if found == 0 {
		t.Error("no entities are found at all")
	}
}

// A text of several windows has each relation once, at the best score of its windows. A neighbour
// that cannot be read is answered with an error of its own, and what finds more than there is room
// for runs again.
func TestRelationsOfLongTexts(t *testing.T) {
	const name = "relex-span"
	r := start(t, nil, nil, spansEntry(t, name))
	text := readTexts[relationsText](t, name)[0]
	long := strings.Repeat(text.Text+" ", 150)
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: text.Labels,
		Texts: []string{long, " ", text.Text},
		Options: map[string]any{"threshold": 0.1, "relation_threshold": 0.0,
			"relation_labels": anyOf(text.Relations)}})
	if err != nil || res.Found[0].Err != nil || res.Found[2].Err != nil {
		t.Fatal(err, res)
	}
	if res.Found[1].Err == nil {
		t.Error("a blank text has no error")
	}
	seen, last := map[api.Relation]bool{}, 2.0
	for _, x := range res.Found[0].Relations {
		if x.Score > last {
			t.Errorf("%v behind %v", x, last)
		}
		last, x.Score = x.Score, 0
		if seen[x] {
			t.Errorf("%v is there twice", x)
		}
		seen[x] = true
	}
	if len(seen) < 3 || len(res.Found[2].Relations) < 3 {
		t.Errorf("%d relations in a long text, %d in a short one", len(seen), len(res.Found[2].Relations))
	}
}

// What cannot be answered is refused with field, value and bound.
func TestRelationsRefuse(t *testing.T) {
	const name = "relex-span"
	plain := "gliner-bert-span"
	r := start(t, nil, nil, spansEntry(t, name), spansEntry(t, plain))
	many := make([]any, 1001)
	for i := range many {
		many[i] = fmt.Sprint("r", i)
	}
	list := func(names ...any) map[string]any { return map[string]any{"relation_labels": names} }
	with := func(key string, v any) map[string]any {
		o := list("r")
		o[key] = v
		return o
	}
	const limit = "options.relation_threshold"
	for what, c := range map[string]struct {
		model   string
		labels  []string
		options map[string]any
		want    string
	}{
		"a model without relations": {plain, nil, list("r"), "finds no relations"},
		"a threshold for nothing": {plain, nil, map[string]any{"relation_threshold": 0.5},
			"options.relation_threshold"},
		"blank":                 {name, nil, list("r", " \t"), "options.relation_labels[1] is blank"},
		"twice":                 {name, nil, list("r", "s", " r"), "options.relation_labels[0] again"},
		"no string":             {name, nil, list("r", int64(7)), "options.relation_labels[1]"},
		"no list":               {name, nil, map[string]any{"relation_labels": "r"}, "a list"},
		"129 characters":        {name, nil, list(strings.Repeat("é", 129)), "at most 128"},
		"a marker":              {name, nil, list("a <<REL>> b"), "<<REL>>"},
		"a label with a marker": {name, []string{"a <<REL>>"}, list("r"), "<<REL>>"},
		"1,001 relations":       {name, nil, map[string]any{"relation_labels": many}, "1000"},
		"1,001 with a label":    {name, nil, map[string]any{"relation_labels": many[:1000]}, "1000"},
		"a long prompt":         {name, nil, list(many[:900]...), "max_prompt_tokens"},
		"threshold 0.09":        {name, nil, with("threshold", 0.09), "at least 0.1"},
		"threshold NaN":         {name, nil, with("threshold", math.NaN()), "options.threshold"},
		"no relations, 0.05":    {name, nil, map[string]any{"threshold": 0.05}, "at least 0.1"},
		"relations above 1":     {name, nil, with("relation_threshold", 1.5), limit},
		"relations NaN":         {name, nil, with("relation_threshold", math.NaN()), limit},
		"relations below 0":     {name, nil, with("relation_threshold", -0.1), limit},
	} {
		labels := c.labels
		if labels == nil {
			labels = []string{"a"}
		}
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: c.model, Texts: []string{"Berlin"},
			Labels: labels, Options: c.options})
		if e := errs.As(err); e == nil || e.Info().Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v; want a 400 with %q", what, err, c.want)
		}
	}
	for _, threshold := range []float64{0.1, 1} { // at the bounds
		if _, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: []string{"Berlin"},
			Labels: []string{"a"}, Options: with("threshold", threshold)}); err != nil {
			t.Errorf("threshold %v: %v", threshold, err)
		}
	}
}

// A text with more than 100 candidates has relations between the first 100 alone, and the entities
// of them all.
func TestRelationsOfManyCandidates(t *testing.T) {
	const name = "relex-span"
	r := start(t, nil, nil, spansEntry(t, name))
	first := readTexts[relationsText](t, name)[0]
	text := strings.Repeat(first.Text+" ", 25)
	ask := func(text string) (entities []api.Entity, relations []api.Relation) {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: first.Labels,
			Texts: []string{text},
			Options: map[string]any{"threshold": 0.1, "relation_threshold": 0.0, "flat_ner": false,
				"multi_label": true, "relation_labels": []any{"r", "s", "t"}}})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(err, res)
		}
		return res.Found[0].Entities, res.Found[0].Relations
	}
	entities, relations := ask(text)
	spans := map[[2]int]bool{}
	for _, e := range entities {
		spans[[2]int{e.Start, e.End}] = true
	}
	if len(spans) <= 100 {
		t.Fatalf("%d spans are found: the text proves nothing", len(spans))
	}
	// every two of those that are decoded, which are more than a first run has room for
	n, paired := len(relations), 0
	for 3*paired*(paired-1) < n {
		paired++
	}
	if n <= 2*1024 || paired > 100 || 3*paired*(paired-1) != n {
		t.Errorf("%d relations: not three of each two of at most 100 candidates", n)
	}
}
