package task_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A client may send one set of options with all its calls. Each operation uses its own options,
// names the others as ignored, and answers as it does without them.
func TestOptionsForAllOperations(t *testing.T) {
	r := start(t, nil, []string{mean},
		entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification",
			"tasks: {extract: {}}"))
	all := map[string]any{
		"normalize":      true,
		"dimensions":     int64(8),
		"score_mode":     "hybrid",
		"top_k":          int64(1),
		"output_dtype":   "float16",
		"max_seq_length": int64(30),
	}
	texts := []string{"the cat sat", "zebra"}

	encoded := func(o map[string]any) *Result {
		res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: texts, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	got, want := encoded(all), encoded(map[string]any{
		"normalize": true, "dimensions": int64(8), "output_dtype": "float16", "max_seq_length": int64(30),
	})
	if !slices.Equal(got.Ignored, []string{"score_mode", "top_k"}) || want.Ignored != nil ||
		!reflect.DeepEqual(got.Rows, want.Rows) || got.Dims != 8 {
		t.Errorf("encode ignores %v and gives %d dims", got.Ignored, got.Dims)
	}

	scored := func(o map[string]any) *Result {
		res, err := r.Score(t.Context(), &ScoreRequest{Model: "ce", Query: "a cat", Texts: texts, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	delete(all, "score_mode") // score_mode belongs to scoring, but the cross-encoder has no modes
	if got := scored(all); !slices.Equal(got.Ignored, []string{
		"dimensions", "normalize", "output_dtype", "top_k",
	}) || !slices.Equal(got.Scores, scored(nil).Scores) {
		t.Errorf("score ignores %v and gives %v", got.Ignored, got.Scores)
	}

	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "moods", Texts: texts, Options: all})
	if err != nil || !slices.Equal(res.Ignored, []string{"dimensions", "normalize", "output_dtype"}) ||
		len(res.Found[0].Classes) != 1 {
		t.Errorf("extract: %+v, %v", res, err)
	}
}
