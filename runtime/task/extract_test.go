package task_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// Zero-shot labels compete by their entailment logits, or each stands alone. A model without a
// label of entailment is refused with an error that says so.
func TestZeroShot(t *testing.T) {
	labels := map[string]any{
		"id2label": map[string]string{"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"},
		"label2id": map[string]int{"contradiction": 0, "neutral": 1, "ENTAILMENT": 2},
	}
	dir := withTokenizer(t, "classify-bert", "st-mean", labels)
	r := start(t, nil, nil, entry(t, "nli", dir, "nli_classification_flash", "tasks: {extract: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "nli_classification",
			"tasks: {extract: {}}"))
	texts, names := []string{"the cat sat", "zebra quiz 42"}, []string{"animals", "maths", "sea"}
	var pairs [][2]string
	for _, text := range texts {
		for _, l := range names {
			pairs = append(pairs, [2]string{text, "I say " + l + "!"})
		}
	}
	raw, err := r.Classify(t.Context(), &ClassifyRequest{Model: "nli", Pairs: pairs, RawScores: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, multi := range []bool{false, true} {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Texts: texts, Labels: names,
			Options: map[string]any{"hypothesis_template": "I say {}!", "multi_label": multi}})
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range res.Found {
			z := []float64{raw.Classes[3*i][2], raw.Classes[3*i+1][2], raw.Classes[3*i+2][2]}
			want := softmax(z)
			for k := range want {
				if row := raw.Classes[3*i+k]; multi {
					want[k] = 1 / (1 + math.Exp(row[0]-row[2])) // entailment against contradiction
				}
			}
			for j, c := range item.Classes {
				if j > 0 && c.Score > item.Classes[j-1].Score {
					t.Error("the labels are not in order")
				}
				if math.Abs(c.Score-want[slices.Index(names, c.Label)]) > 1e-12 {
					t.Errorf("multi %v, text %d, %s: %v, want %v", multi, i, c.Label, c.Score, want)
				}
			}
			if len(item.Classes) != 3 {
				t.Errorf("%d classes", len(item.Classes))
			}
		}
	}
	for model, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string
	}{
		"moods": {names, nil, "has no label of entailment, or no other, among joy, anger, fear"},
		"nli":   {nil, nil, "requires labels"},
		"nli ":  {names, map[string]any{"hypothesis_template": "no place"}, "must have {} once"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{
			Model: strings.TrimSpace(model), Texts: texts, Labels: c.labels, Options: c.options,
		})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %q", model, err, c.want)
		}
	}
}

// A model with its own labels classifies texts, or finds entities by code points.
func TestOwnLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil),
		"sequence_classification", "tasks: {extract: {}}"), entry(t, "names",
		withTokenizer(t, "tag-bert", "st-mean", nil), "token_classification", "tasks: {extract: {}}"))
	texts := []string{"éàü the cat sat on the mat", "zebra quiz 42", ""}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "moods", Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range res.Found {
		sum := 0.0
		for _, c := range item.Classes {
			sum += c.Score
		}
		if len(item.Classes) != 3 || math.Abs(sum-1) > 1e-9 {
			t.Errorf("text %d: %v", i, item.Classes)
		}
	}
	if res, err = r.Extract(t.Context(), &ExtractRequest{Model: "names", Texts: texts}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, item := range res.Found {
		for _, e := range item.Entities {
			found++
			if text := string([]rune(texts[i])[e.Start:e.End]); text != e.Text || e.Label == "O" ||
				strings.Contains(e.Label, "-") || e.Score <= 0 || e.Score > 1 {
				t.Errorf("text %d: %+v, where the text has %q", i, e, text)
			}
		}
	}
	if found == 0 {
		t.Error("no entity in any text: the test proves nothing")
	}
}

// If truncation is forbidden, an item that is too long has its own error. The other items have the
// same result as without it.
func TestItemErrors(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", golden.Open(t, "pipeline-zero-shot").Dir,
		"nli_classification_flash", "tasks: {extract: {}}"),
		entry(t, "tags", golden.Open(t, "pipeline-tags").Dir, "token_classification", "tasks: {extract: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification",
			"tasks: {extract: {}}"))
	long := strings.Repeat("the cat sat ", 40)
	texts := []string{"Angela \U0001f642", long, "in Berlin", long, ""}
	for model, labels := range map[string][]string{
		"nli": {"sea", "the cat spoke", "x"}, "tags": nil, "moods": nil,
	} {
		if texts[4] = ""; model == "nli" { // which has nothing to say of a blank text
			texts[4] = "!"
		}
		ask := func(texts []string, policy string) *Result {
			res, err := r.Extract(t.Context(), &ExtractRequest{
				Model: model, Texts: texts, Labels: labels,
				Options: map[string]any{"overflow_policy": policy},
			})
			if err != nil {
				t.Fatalf("%s: %v", model, err)
			}
			return res
		}
		res, alone := ask(texts, "error"), ask([]string{texts[0], texts[2], texts[4]}, "error")
		for i, j := range []int{0, 2, 4} {
			if !reflect.DeepEqual(res.Found[j], alone.Found[i]) {
				t.Errorf("%s, item %d: %+v, without the long ones %+v",
					model, j, res.Found[j], alone.Found[i])
			}
		}
		if res.Tokens != alone.Tokens {
			t.Errorf("%s: %d tokens, %d without the items that failed", model, res.Tokens, alone.Tokens)
		}
		for _, j := range []int{1, 3} {
			e := res.Found[j].Err
			if e == nil || e.Code != errs.InputTooLong || e.Param != fmt.Sprintf("items[%d]", j) ||
				res.Found[j].Classes != nil || res.Found[j].Entities != nil {
				t.Errorf("%s, item %d: %+v", model, j, res.Found[j])
			}
		}
		for _, policy := range []string{"default", "truncate_text"} {
			for j, item := range ask(texts, policy).Found {
				if item.Err != nil || len(item.Classes)+len(item.Entities) == 0 && texts[j] != "" {
					t.Errorf("%s, %s, item %d: %+v", model, policy, j, item)
				}
			}
		}
	}
	// A label that is too long for the model on its own fails the request.
	_, err := r.Extract(t.Context(), &ExtractRequest{
		Model:   "nli",
		Texts:   texts[:1],
		Labels:  []string{"sea", strings.Repeat("x ", 60)},
		Options: map[string]any{"overflow_policy": "error"},
	})
	if e := errs.As(err); e == nil || e.Code != errs.InputTooLong || e.Status != 400 ||
		e.Param != "params.labels[1]" {
		t.Errorf("a long label: %v", err)
	}
}

// Labels choose among the model's own labels, ignoring case. A label that the model does not have
// is refused, because it would never be found.
func TestChosenLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil),
		"sequence_classification", "tasks: {extract: {}}"),
		entry(t, "tags", golden.Open(t, "pipeline-tags").Dir, "token_classification", "tasks: {extract: {}}"))
	for _, c := range []struct {
		model  string
		labels []string
		want   int // number of classes
		text   string
	}{
		{"moods", nil, 3, ""}, {"moods", []string{}, 3, ""}, {"moods", []string{"Fear", "joy", "joy"}, 2, ""},
		{"tags", []string{"per", "Misc"}, 0, ""},
		{"moods", []string{"joy", "hope"}, 0,
			"label 1 of params.labels is 'hope'; model 'moods' has the labels joy, anger, fear"},
		{"tags", []string{"B-PER"}, 0,
			"label 0 of params.labels is 'B-PER'; model 'tags' has the labels PER, LOC, MISC"},
		{"tags", []string{"LOC", "O"}, 0, "label 1 of params.labels is 'O'"},
		{"tags", []string{" "}, 0, "params.labels[0] is blank"},
	} {
		res, err := r.Extract(t.Context(),
			&ExtractRequest{Model: c.model, Texts: []string{"the cat"}, Labels: c.labels})
		if e := errs.As(err); c.text != "" && (e == nil || e.Status != 400 || e.Param != "params.labels" ||
			!strings.Contains(e.Message, c.text)) {
			t.Errorf("%s %q: %v", c.model, c.labels, err)
		} else if c.text == "" && (err != nil || len(res.Found[0].Classes) != c.want) {
			t.Errorf("%s %q: %+v, %v", c.model, c.labels, res, err)
		}
	}
}
