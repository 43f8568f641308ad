package task_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// Whole directories of Qwen give sentence-transformers' vectors: the last token of a causal Qwen3,
// as in Qwen3-Embedding, and a Qwen2 in which every token sees all others with a Dense module, as
// in stella. Queries carry the templates and the default instructions of the catalog's entries.
func TestQwenEmbeddersEqualTheLibrary(t *testing.T) {
	const ask = "Given a web search query, retrieve relevant passages that answer the query"
	for name, how := range map[string]struct{ query, template, instruction string }{
		"st-qwen3-last":  {"query", "Instruct: {instruction}\nQuery:{text}", ask},
		"st-qwen2-dense": {"s2p_query", "Instruct: {instruction}\nQuery: {text}", ask + "."},
	} {
		c := golden.Open(t, name)
		want, shape := c.Float32("vectors")
		m := entry(t, "embed", c.Dir, "qwen2_flash",
			fmt.Sprintf("tasks: {encode: {dense: {dim: %d}}}", shape[1]))
		m.MaxSequenceLength = 64
		r := start(t, nil, nil, m)
		queries := 0
		for i, x := range goldenTexts(t, c) {
			query := x.Prompt != nil && *x.Prompt == how.query
			q := &Request{Model: "embed", Texts: []string{x.Text}, IsQuery: &query, Options: map[string]any{
				"query_template": how.template, "default_instruction": how.instruction}}
			if query {
				queries++
			}
			if d := golden.Compare(floats(r.Rows(q)[0]), want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%s: %q: %v", name, x.Text, d)
			}
		}
		if queries < 5 {
			t.Errorf("%s: %d queries", name, queries)
		}
	}
}

// A decoder classifies a text, and scores a pair, by the last token that is not the padding token
// of its configuration, whatever the tokenizer appends: with [SEP] for that token, written or
// appended, texts with and without it are one. With another padding token they are not.
func TestClassifiersBehindDecoders(t *testing.T) {
	const three, one = "classify-qwen3", "classify-qwen2"
	of := func(name string, pad int) string {
		return withTokenizer(t, name, "st-mean", map[string]any{"pad_token_id": pad})
	}
	r := start(t, nil, nil,
		entry(t, "moods", of(three, 3), "sequence_classification", "tasks: {extract: {}}"),
		entry(t, "moods-padded", of(three, 0), "sequence_classification", "tasks: {extract: {}}"),
		entry(t, "score", of(one, 3), "cross_encoder", "tasks: {score: {}}"))
	texts := []string{"the cat sat", "the cat sat [SEP]", "the cat sat [SEP] [SEP]", "the cat [SEP] sat"}
	classes := func(model string) [][]float64 {
		res, err := r.Classify(t.Context(), &ClassifyRequest{Model: model, Texts: texts, RawScores: true})
		if err != nil {
			t.Fatal(err)
		}
		return res.Classes
	}
	z := classes("moods")
	if !slices.Equal(z[0], z[1]) || !slices.Equal(z[0], z[2]) || slices.Equal(z[0], z[3]) {
		t.Errorf("classes %v", z)
	}
	if z := classes("moods-padded"); slices.Equal(z[0], z[1]) {
		t.Errorf("a token that is no padding changes nothing: %v", z)
	}
	res, err := r.Score(t.Context(), &ScoreRequest{Model: "score", Query: "a cat", Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	if s := res.Scores; s[0] != s[1] || s[0] != s[2] || s[0] == s[3] {
		t.Errorf("scores %v", s)
	}
}
