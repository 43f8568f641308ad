package worker

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// Zero-shot labels compete by their entailment logits, or stand alone; a model without such a label says so.
func TestZeroShot(t *testing.T) {
	labels := map[string]any{"id2label": map[string]string{"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}, "label2id": map[string]int{"contradiction": 0, "neutral": 1, "ENTAILMENT": 2}}
	dir := withTokenizer(t, "classify-bert", "st-mean", labels)
	r := start(t, nil, nil, entry(t, "nli", dir, "nli_classification_flash", "tasks: {extract: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "nli_classification", "tasks: {extract: {}}"))
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
		for i, item := range res.Items {
			z := []float64{raw.Scores[3*i][2], raw.Scores[3*i+1][2], raw.Scores[3*i+2][2]}
			want := softmax(z)
			if multi {
				want = sigmoids(z)
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
	}{"moods": {names, nil, "has no label of entailment among joy, anger, fear"}, "nli": {nil, nil, "requires labels"},
		"nli ": {names, map[string]any{"hypothesis_template": "no place"}, "must have {} once"}} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: strings.TrimSpace(model), Texts: texts, Labels: c.labels, Options: c.options})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %q", model, err, c.want)
		}
	}
}

// Heads with labels of their own: classes of texts, and entities by code points.
func TestOwnLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", "tasks: {extract: {}}"),
		entry(t, "names", withTokenizer(t, "tag-bert", "st-mean", nil), "token_classification", "tasks: {extract: {}}"))
	texts := []string{"éàü the cat sat on the mat", "zebra quiz 42", ""}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "moods", Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range res.Items {
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
	for i, item := range res.Items {
		for _, e := range item.Entities {
			found++
			if text := string([]rune(texts[i])[e.Start:e.End]); text != e.Text || e.Label == "O" || strings.Contains(e.Label, "-") || e.Score <= 0 || e.Score > 1 {
				t.Errorf("text %d: %+v, where the text has %q", i, e, text)
			}
		}
	}
	if found == 0 {
		t.Error("no entity in any text: the test proves nothing")
	}
}
