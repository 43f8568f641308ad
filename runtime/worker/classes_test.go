package worker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// Classes are shares of one, or each a probability of its own: as the model says, as the request says, and of a single label.
func TestSharesAndProbabilities(t *testing.T) {
	const tasks = "tasks: {extract: {}}"
	r := start(t, nil, nil, entry(t, "several", withTokenizer(t, "classify-distilbert", "st-mean", nil), "sequence_classification", tasks),
		entry(t, "one", golden.Open(t, "rerank-sigmoid").Dir, "sequence_classification", tasks),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", tasks))
	texts := []string{"the cat sat", "on the mat"}
	alone := map[string]bool{"several": true, "several true": true, "moods true": true, "one": true, "one true": true, "one false": true}
	for _, model := range []string{"several", "one", "moods"} {
		raw, err := r.Classify(t.Context(), &ClassifyRequest{Model: model, Texts: texts, RawScores: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, multi := range []any{nil, true, false} {
			name := strings.TrimSuffix(fmt.Sprint(model, " ", multi), " <nil>")
			res, err := r.Extract(t.Context(), &ExtractRequest{Model: model, Texts: texts, Options: map[string]any{"multi_label": multi}})
			if err != nil {
				t.Fatal(err)
			}
			for i, item := range res.Items {
				sum := 0.0
				for _, z := range raw.Scores[i] {
					sum += math.Exp(z)
				}
				for _, c := range item.Classes {
					z := raw.Scores[i][slices.Index(raw.Labels, c.Label)]
					want := math.Exp(z) / sum
					if alone[name] {
						want = 1 / (1 + math.Exp(-z))
					}
					if math.Abs(c.Score-want) > 1e-9 {
						t.Errorf("%s, text %d, %s: %v, want %v", name, i, c.Label, c.Score, want)
					}
				}
			}
			if res.Tokens != raw.Tokens || res.Tokens == 0 {
				t.Errorf("%s: %d tokens, by Classify %d", name, res.Tokens, raw.Tokens)
			}
		}
	}
}

// threshold keeps what reaches it, top_k the first; of equal scores the first label comes first.
func TestRanked(t *testing.T) {
	labels, scores := []string{"a", "b", "c", "d"}, []float64{0.25, 0.5, 0.25, 0.125}
	for _, c := range []struct {
		options map[string]any
		want    string
	}{
		{nil, "b a c d"}, {map[string]any{"threshold": 0.25}, "b a c"}, {map[string]any{"threshold": 0}, "b a c d"}, {map[string]any{"threshold": int64(1)}, ""},
		{map[string]any{"threshold": 1}, ""}, {map[string]any{"top_k": 1}, "b"}, {map[string]any{"top_k": int64(2)}, "b a"}, {map[string]any{"top_k": 9.0}, "b a c d"},
		{map[string]any{"top_k": 0}, "b a c d"}, {map[string]any{"top_k": 3, "threshold": 0.5}, "b"},
	} {
		var got []string
		for _, x := range ranked(labels, scores, c.options) {
			got = append(got, x.Label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v, want %s", c.options, got, c.want)
		}
	}
	if p := softmax([]float64{1000, 1000, -1000}); p[0] != 0.5 || p[1] != 0.5 || p[2] != 0 {
		t.Errorf("softmax of large logits: %v", p)
	}
}

func TestBestTagsAndJoin(t *testing.T) {
	places := make([]tokenizer.Place, 3)
	for i := range places {
		places[i] = tokenizer.Place{Start: uint32(2 * i), End: uint32(2*i + 1)}
	}
	tags := bestTags([]float64{1, 1, 0, 0, 3, 3, 0, 0, 0}, []string{"O", "B-X", "I-X"}, places)
	for i, want := range []string{"O", "B-X", "O"} { // of equal logits the first
		if tags[i].label != want {
			t.Errorf("token %d: %s, want %s", i, tags[i].label, want)
		}
	}
	found := join([]tagged{{"I-X", 0.5, 0, 1}, {"I-X", 0.25, 2, 3}, {"B-X", 1, 4, 5}, {"O", 1, 6, 7}, {"X", 1, 8, 9}, {"I-Y", 1, 10, 11}}, "a b c d e f")
	want := []api.Entity{{Text: "a b", Label: "X", Score: 0.375, Start: 0, End: 3}, {Text: "c", Label: "X", Score: 1, Start: 4, End: 5},
		{Text: "e", Label: "X", Score: 1, Start: 8, End: 9}, {Text: "f", Label: "Y", Score: 1, Start: 10, End: 11}}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", found, want)
	}
}

func TestHypothesis(t *testing.T) {
	for template, want := range map[string]string{"": "This text is about x{}.", "{}": "x{}", "{{a}} {} }}b{{": "{a} x{} }b{", "no": "", "{} {}": "", "{0}": ""} {
		p := &plan{options: &catalog.RuntimeOptions{Raw: map[string]any{"hypothesis_template": template}}, model: &catalog.Resolved{Loadtime: &catalog.LoadtimeOptions{}}}
		h, err := hypothesis(p)
		if (err == nil) != (want != "") || err == nil && h.Format("x{}") != want {
			t.Errorf("%q: %q, %v, want %q", template, h.Format("x{}"), err, want)
		}
		if e := errs.As(err); err != nil && e.Param != "options.hypothesis_template" {
			t.Errorf("%q: %v", template, err)
		}
	}
	// What the model is loaded with holds where neither request nor profile says otherwise.
	p := &plan{options: &catalog.RuntimeOptions{}, model: &catalog.Resolved{Loadtime: &catalog.LoadtimeOptions{Raw: map[string]any{"hypothesis_template": "I see {}"}}}}
	if h, err := hypothesis(p); err != nil || h.Format("x") != "I see x" {
		t.Errorf("%q, %v", h.Format("x"), err)
	}
}

// More pairs than are tokenised together: every text has its own labels' scores, and the count of tokens is that of the pairs.
func TestZeroShotOfManyPairs(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", golden.Open(t, "pipeline-zero-shot").Dir, "nli_classification", "tasks: {extract: {}}"))
	ask := func(texts []string, options map[string]any) *ExtractResult {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Texts: texts, Labels: []string{"sea", "cats", "x"}, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	many := make([]string, 2*chunkTexts/3+5)
	for i := range many {
		many[i] = fmt.Sprint("no ", i)
	}
	res, tokens := ask(many, nil), 0
	for i, text := range many {
		one := ask([]string{text}, nil)
		if fmt.Sprint(one.Items[0]) != fmt.Sprint(res.Items[i]) {
			t.Errorf("text %d: %v, alone %v", i, res.Items[i], one.Items[0])
		}
		tokens += one.Tokens
	}
	if strict := ask(many, map[string]any{"overflow_policy": "error"}); res.Tokens != tokens || strict.Tokens != tokens {
		t.Errorf("%d tokens, where nothing may be cut %d, one by one %d", res.Tokens, strict.Tokens, tokens)
	}
}

// A model whose one label is entailment has nothing that it competes with.
func TestZeroShotNeedsTwoLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", relabelled(t, "rerank-sigmoid", []string{"entailment"}), "nli_classification", "tasks: {extract: {}}"))
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Texts: []string{"a"}, Labels: []string{"x"}})
	if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, "no label of entailment, or no other") {
		t.Errorf("%v", err)
	}
}

// Classify gives logits, shares, or the probability of a single label, for more texts and pairs than are tokenised together.
func TestClassify(t *testing.T) {
	const tasks = "tasks: {extract: {}}"
	r := start(t, nil, []string{mean}, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", tasks),
		entry(t, "one", golden.Open(t, "rerank-sigmoid").Dir, "sequence_classification", tasks))
	ask := func(c ClassifyRequest) *ClassifyResult {
		res, err := r.Classify(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	texts := words(chunkTexts + 3)
	pairs := make([][2]string, len(texts))
	for i := range pairs {
		pairs[i] = [2]string{texts[i], "the mat"}
	}
	all, both := ask(ClassifyRequest{Model: "moods", Texts: texts, RawScores: true}), ask(ClassifyRequest{Model: "moods", Pairs: pairs, RawScores: true})
	for _, i := range []int{0, 1, chunkTexts - 1, chunkTexts, chunkTexts + 2} {
		one := ask(ClassifyRequest{Model: "moods", Texts: texts[i : i+1], RawScores: true})
		pair := ask(ClassifyRequest{Model: "moods", Pairs: pairs[i : i+1], RawScores: true})
		if !slices.Equal(one.Scores[0], all.Scores[i]) || !slices.Equal(pair.Scores[0], both.Scores[i]) || slices.Equal(one.Scores[0], pair.Scores[0]) {
			t.Errorf("number %d: %v %v, alone %v %v", i, all.Scores[i], both.Scores[i], one.Scores[0], pair.Scores[0])
		}
	}
	c := golden.Open(t, "rerank-sigmoid")
	logits, _ := c.Float32("logits")
	pairs = readTexts[[2]string](t, "rerank-sigmoid")
	raw, scores := ask(ClassifyRequest{Model: "one", Pairs: pairs, RawScores: true}), ask(ClassifyRequest{Model: "one", Pairs: pairs})
	for i := range pairs {
		if z := float64(logits[i]); math.Abs(raw.Scores[i][0]-z) > 1e-5 || math.Abs(scores.Scores[i][0]-1/(1+math.Exp(-z))) > 1e-5 {
			t.Errorf("pair %d: %v, %v; CrossEncoder's logit is %v", i, raw.Scores[i], scores.Scores[i], z)
		}
	}
	_, err := r.Classify(t.Context(), &ClassifyRequest{Model: mean, Texts: texts[:1]})
	if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, "does not support extraction") {
		t.Errorf("a model without labels: %v", err)
	}
}
