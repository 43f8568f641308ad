package task_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/task"
)

// Class scores sum to one, or each is a probability on its own: by the model, by the request, and
// for a single label. What a regression measures stays as it is.
func TestSharesAndProbabilities(t *testing.T) {
	const tasks = "tasks: {extract: {}}"
	measures := withTokenizer(t, "classify-bert", "st-mean", nil)
	measure := copyModel(t, "rerank-sigmoid")
	for _, dir := range []string{measures, measure} {
		edit(t, filepath.Join(dir, "config.json"), map[string]any{"problem_type": "regression"})
	}
	r := start(t, nil, nil, entry(t, "measures", measures, "sequence_classification", tasks),
		entry(t, "measure", measure, "sequence_classification", tasks),
		entry(t, "several", withTokenizer(t, "classify-distilbert", "st-mean", nil),
			"sequence_classification", tasks),
		entry(t, "one", golden.Open(t, "rerank-sigmoid").Dir, "sequence_classification", tasks), entry(t,
			"moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", tasks))
	texts := []string{"the cat sat", "on the mat"}
	alone := map[string]bool{
		"several":      true,
		"several true": true,
		"moods true":   true,
		"one":          true,
		"one true":     true,
		"one false":    true,

		"measures true": true,
		"measure true":  true,
	}
	for _, model := range []string{"several", "one", "moods", "measures", "measure"} {
		raw, err := r.Classify(t.Context(), &ClassifyRequest{Model: model, Texts: texts, RawScores: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, multi := range []any{nil, true, false} {
			name := strings.TrimSuffix(fmt.Sprint(model, " ", multi), " <nil>")
			res, err := r.Extract(t.Context(),
				&ExtractRequest{Model: model, Texts: texts, Options: map[string]any{"multi_label": multi}})
			if err != nil {
				t.Fatal(err)
			}
			for i, item := range res.Found {
				sum := 0.0
				for _, z := range raw.Classes[i] {
					sum += math.Exp(z)
				}
				for _, c := range item.Classes {
					z := raw.Classes[i][slices.Index(raw.Labels, c.Label)]
					want := math.Exp(z) / sum
					switch {
					case alone[name]:
						want = 1 / (1 + math.Exp(-z))
					case strings.HasPrefix(model, "measure"):
						want = z
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

// With more pairs than are tokenised together, every text still has its own labels' scores, and the
// token count is that of the pairs.
func TestZeroShotOfManyPairs(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", golden.Open(t, "pipeline-zero-shot").Dir, "nli_classification",
		"tasks: {extract: {}}"))
	ask := func(texts []string, options map[string]any) *Result {
		res, err := r.Extract(t.Context(), &ExtractRequest{
			Model: "nli", Texts: texts, Labels: []string{"sea", "cats", "x"}, Options: options,
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	many := make([]string, 2*task.ChunkTexts/3+5)
	for i := range many {
		many[i] = fmt.Sprint("no ", i)
	}
	res, tokens := ask(many, nil), 0
	for i, text := range many {
		one := ask([]string{text}, nil)
		if fmt.Sprint(one.Found[0]) != fmt.Sprint(res.Found[i]) {
			t.Errorf("text %d: %v, alone %v", i, res.Found[i], one.Found[0])
		}
		tokens += one.Tokens
	}
	if strict := ask(many, map[string]any{"overflow_policy": "error"}); res.Tokens != tokens ||
		strict.Tokens != tokens {
		t.Errorf("%d tokens, where nothing may be cut %d, one by one %d", res.Tokens, strict.Tokens, tokens)
	}
}

// A model whose only label is entailment is refused, because nothing competes with it.
func TestZeroShotNeedsTwoLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", relabelled(t, "rerank-sigmoid", []string{"entailment"}),
		"nli_classification", "tasks: {extract: {}}"))
	_, err := r.Extract(t.Context(),
		&ExtractRequest{Model: "nli", Texts: []string{"a"}, Labels: []string{"x"}})
	if e := errs.As(err); e == nil || e.Status != 400 ||
		!strings.Contains(e.Message, "no label of entailment, or no other") {
		t.Errorf("%v", err)
	}
}

// Classify gives logits, a softmax, or the sigmoid of a single label, for more texts and pairs than
// are tokenised together.
func TestClassify(t *testing.T) {
	const tasks = "tasks: {extract: {}}"
	r := start(t, nil, []string{
		mean,
	}, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", tasks),
		entry(t, "one", golden.Open(t, "rerank-sigmoid").Dir, "sequence_classification", tasks))
	ask := func(c ClassifyRequest) *Result {
		res, err := r.Classify(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	texts := words(task.ChunkTexts + 3)
	pairs := make([][2]string, len(texts))
	for i := range pairs {
		pairs[i] = [2]string{texts[i], "the mat"}
	}
	all, both := ask(ClassifyRequest{Model: "moods", Texts: texts, RawScores: true}), ask(ClassifyRequest{
		Model: "moods", Pairs: pairs, RawScores: true,
	})
	for _, i := range []int{0, 1, task.ChunkTexts - 1, task.ChunkTexts, task.ChunkTexts + 2} {
		one := ask(ClassifyRequest{Model: "moods", Texts: texts[i : i+1], RawScores: true})
		pair := ask(ClassifyRequest{Model: "moods", Pairs: pairs[i : i+1], RawScores: true})
		if !slices.Equal(one.Classes[0], all.Classes[i]) || !slices.Equal(pair.Classes[0], both.Classes[i]) ||
			slices.Equal(one.Classes[0], pair.Classes[0]) {
			t.Errorf("number %d: %v %v, alone %v %v",
				i, all.Classes[i], both.Classes[i], one.Classes[0], pair.Classes[0])
		}
	}
	c := golden.Open(t, "rerank-sigmoid")
	logits, _ := c.Float32("logits")
	pairs = readTexts[[2]string](t, "rerank-sigmoid")
	raw, scores := ask(ClassifyRequest{Model: "one", Pairs: pairs, RawScores: true}), ask(ClassifyRequest{
		Model: "one", Pairs: pairs,
	})
	for i := range pairs {
		if z := float64(logits[i]); math.Abs(raw.Classes[i][0]-z) > 1e-5 ||
			math.Abs(scores.Classes[i][0]-1/(1+math.Exp(-z))) > 1e-5 {
			t.Errorf("pair %d: %v, %v; CrossEncoder's logit is %v", i, raw.Classes[i], scores.Classes[i], z)
		}
	}
	_, err := r.Classify(t.Context(), &ClassifyRequest{Model: mean, Texts: texts[:1]})
	if e := errs.As(err); e == nil || e.Status != 400 ||
		!strings.Contains(e.Message, "does not support extraction") {
		t.Errorf("a model without labels: %v", err)
	}
}
