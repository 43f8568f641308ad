package worker

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// adapted is a model over dir with PEFT's adapters of a base of the case lora-heads by name, and a profile that has one.
func adapted(t *testing.T, id, dir, base, adapter, rest string) *catalog.Model {
	t.Helper()
	at := filepath.Join(golden.Open(t, "lora-heads").Dir, base)
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default:
    adapter_path: "sie_server.adapters.%s:X"
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {lora_paths: {attention: %[5]s/attention, all: %[5]s/all, saved: %[5]s/saved}}
  tuned: {extends: default, adapter_options: {runtime: {lora_id: all}}}
`, id, dir, rest, adapter, at))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// untilLoaded asks again while an adapter is loading.
func untilLoaded[R any](t *testing.T, ask func() (R, error)) (res R, err error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if res, err = ask(); errs.As(err) == nil || errs.As(err).Code != errs.LoRALoading || time.Now().After(end) {
			return res, err
		}
	}
}

// A cross-encoder scores with an adapter as PEFT does, by request, by profile and without; an adapter with a head of its own is
// refused by the key that says so.
func TestLoRAOnScore(t *testing.T) {
	c, adapters := golden.Open(t, "rerank-sigmoid"), golden.Open(t, "lora-heads")
	r := start(t, nil, nil, adapted(t, "ce", c.Dir, "rerank-sigmoid", "cross_encoder", "tasks: {score: {}}"))
	for lora, want := range map[string]string{"": "", "attention": "rerank-sigmoid.attention", "all": "rerank-sigmoid.all", "of the profile": "rerank-sigmoid.all"} {
		logits, _ := c.Float32("logits")
		if want != "" {
			logits, _ = adapters.Float32(want)
		}
		for i, pair := range readTexts[[2]string](t, "rerank-sigmoid") {
			req := &ScoreRequest{Model: "ce", Query: pair[0], Texts: []string{pair[1], "b", pair[1]}, Options: map[string]any{}}
			switch lora {
			case "":
			case "of the profile":
				req.Model = "ce:tuned"
			default:
				req.Options["lora_id"] = lora
			}
			res, err := untilLoaded(t, func() (*ScoreResult, error) { return r.Score(t.Context(), req) })
			if err != nil {
				t.Fatal(err)
			}
			score := 1 / (1 + math.Exp(-float64(logits[i])))
			if math.Abs(res.Scores[0]-score) > 2e-6 || res.Scores[2] != res.Scores[0] {
				t.Errorf("%q: pair %d scores %v, PEFT %v", lora, i, res.Scores, score)
			}
		}
	}
	req := &ScoreRequest{Model: "ce", Query: "a", Texts: []string{"b"}, Options: map[string]any{"lora_id": "saved"}}
	_, err := untilLoaded(t, func() (*ScoreResult, error) { return r.Score(t.Context(), req) })
	if e := errs.As(err); e == nil || e.Status != 500 || !strings.Contains(e.Message, `modules_to_save: is [`) {
		t.Errorf("an adapter with a head of its own: %v", err)
	}
}

// Extraction and classification with adapters: each way to ask gives the same numbers, which are not those without one.
func TestLoRAOnExtract(t *testing.T) {
	labels := map[string]any{"id2label": map[string]string{"0": "contradiction", "1": "neutral", "2": "entailment"}, "label2id": map[string]int{"contradiction": 0, "neutral": 1, "entailment": 2}}
	r := start(t, nil, nil,
		adapted(t, "nli", withTokenizer(t, "classify-bert", "st-mean", labels), "classify-bert", "nli_classification", "tasks: {extract: {}}"),
		adapted(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "classify-bert", "sequence_classification", "tasks: {extract: {}}"),
		adapted(t, "tags", withTokenizer(t, "tag-bert", "st-mean", nil), "tag-bert", "token_classification", "tasks: {extract: {}}"))
	for _, id := range []string{"nli", "moods", "tags"} {
		ask := func(model, lora string) string {
			req := &ExtractRequest{Model: model, Texts: []string{"the cat sat on the mat", "zebra quiz 42"}, Options: map[string]any{}}
			if id == "nli" {
				req.Labels = []string{"animals", "maths"}
			}
			if lora != "" {
				req.Options["lora_id"] = lora
			}
			res, err := untilLoaded(t, func() (*ExtractResult, error) { return r.Extract(t.Context(), req) })
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(res.Items)
		}
		plain, attention, all, tuned := ask(id, ""), ask(id, "attention"), ask(id, "all"), ask(id+":tuned", "")
		if plain == attention || plain == all || attention == all || tuned != all {
			t.Errorf("%s: %s; attention %s; all %s; by profile %s", id, plain, attention, all, tuned)
		}
	}
	var scores [2]string
	for i, model := range []string{"moods", "moods:tuned"} { // pairs of texts, as text-embeddings-inference classifies
		res, err := r.Classify(t.Context(), &ClassifyRequest{Model: model, Pairs: [][2]string{{"a cat", "b"}}, RawScores: true})
		if err != nil {
			t.Fatal(err)
		}
		scores[i] = fmt.Sprint(res.Scores)
	}
	if scores[0] == scores[1] {
		t.Errorf("a profile's adapter does not change %s", scores[0])
	}
}
