package task_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// A cross-encoder scores with a LoRA adapter as PEFT does: by request, by profile and without. An
// adapter that brings its own head is refused, with the key that says so.
func TestLoRAOnScore(t *testing.T) {
	c, adapters := golden.Open(t, "rerank-sigmoid"), golden.Open(t, "lora-heads")
	r := start(t, nil, nil, adapted(t, "ce", c.Dir, "rerank-sigmoid", "cross_encoder", "tasks: {score: {}}"))
	for lora, want := range map[string]string{
		"":               "",
		"attention":      "rerank-sigmoid.attention",
		"all":            "rerank-sigmoid.all",
		"of the profile": "rerank-sigmoid.all",
	} {
		logits, _ := c.Float32("logits")
		if want != "" {
			logits, _ = adapters.Float32(want)
		}
		for i, pair := range readTexts[[2]string](t, "rerank-sigmoid") {
			req := &ScoreRequest{
				Model: "ce", Query: pair[0], Texts: []string{pair[1], "b", pair[1]},
				Options: map[string]any{},
			}
			switch lora {
			case "":
			case "of the profile":
				req.Model = "ce:tuned"
			default:
				req.Options["lora_id"] = lora
			}
			res, err := untilLoaded(t, func() (*Result, error) { return r.Score(t.Context(), req) })
			if err != nil {
				t.Fatal(err)
			}
			score := 1 / (1 + math.Exp(-float64(logits[i])))
			if math.Abs(res.Scores[0]-score) > 2e-6 || res.Scores[2] != res.Scores[0] {
				t.Errorf("%q: pair %d scores %v, PEFT %v", lora, i, res.Scores, score)
			}
		}
	}
	req := &ScoreRequest{
		Model: "ce", Query: "a", Texts: []string{"b"}, Options: map[string]any{"lora_id": "saved"},
	}
	_, err := untilLoaded(t, func() (*Result, error) { return r.Score(t.Context(), req) })
	if e := errs.As(err); e == nil || e.Status != 500 ||
		!strings.Contains(e.Message, `modules_to_save: is [`) {
		t.Errorf("an adapter with a head of its own: %v", err)
	}
}

// Extraction and classification give the same numbers for each way to ask for a LoRA adapter. They
// differ from the numbers without one.
func TestLoRAOnExtract(t *testing.T) {
	labels := map[string]any{
		"id2label": map[string]string{"0": "contradiction", "1": "neutral", "2": "entailment"},
		"label2id": map[string]int{"contradiction": 0, "neutral": 1, "entailment": 2},
	}
	r := start(t, nil, nil, adapted(t, "nli", withTokenizer(t, "classify-bert", "st-mean", labels),
		"classify-bert", "nli_classification", "tasks: {extract: {}}"), adapted(t, "moods", withTokenizer(t,
		"classify-bert", "st-mean", nil), "classify-bert", "sequence_classification", "tasks: {extract: {}}"),
		adapted(t, "tags", withTokenizer(t, "tag-bert", "st-mean", nil), "tag-bert", "token_classification",
			"tasks: {extract: {}}"))
	for _, id := range []string{"nli", "moods", "tags"} {
		ask := func(model, lora string) string {
			req := &ExtractRequest{
				Model:   model,
				Texts:   []string{"the cat sat on the mat", "zebra quiz 42"},
				Options: map[string]any{},
			}
			if id == "nli" {
				req.Labels = []string{"animals", "maths"}
			}
			if lora != "" {
				req.Options["lora_id"] = lora
			}
			res, err := untilLoaded(t, func() (*Result, error) { return r.Extract(t.Context(), req) })
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(res.Found)
		}
		plain, attention, all, tuned := ask(id, ""), ask(id, "attention"), ask(id, "all"), ask(id+
			":tuned", "")
		if plain == attention || plain == all || attention == all || tuned != all {
			t.Errorf("%s: %s; attention %s; all %s; by profile %s", id, plain, attention, all, tuned)
		}
	}
	var scores [2]string
	// pairs of texts, as text-embeddings-inference classifies
	for i, model := range []string{"moods", "moods:tuned"} {
		res, err := r.Classify(t.Context(),
			&ClassifyRequest{Model: model, Pairs: [][2]string{{"a cat", "b"}}, RawScores: true})
		if err != nil {
			t.Fatal(err)
		}
		scores[i] = fmt.Sprint(res.Classes)
	}
	if scores[0] == scores[1] {
		t.Errorf("a profile's adapter does not change %s", scores[0])
	}
}
