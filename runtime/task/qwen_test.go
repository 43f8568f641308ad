package task_test

import (
	"fmt"
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
