package task_test

import (
	"math"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A whole EmbeddingGemma directory gives sentence-transformers' vectors: both Dense modules, the
// file's prompts for queries and documents, any other prompt as a template, and texts that are cut.
// Vectors of fewer columns are cut and normalised again.
func TestGemmaEmbedderEqualsTheLibrary(t *testing.T) {
	const name = "st-gemma"
	c := golden.Open(t, name)
	m := entry(t, "gemma", c.Dir, "sentence_transformer", "tasks: {encode: {dense: {dim: 16}}}")
	r := start(t, nil, nil, m)
	query, document := true, false
	want, shape := c.Float32("vectors")
	for i, x := range goldenTexts(t, c) {
		q := &Request{Model: "gemma", Texts: []string{x.Text}, IsQuery: &document}
		switch {
		case x.Prompt == nil:
			q.Options = map[string]any{"doc_template": "{text}"}
		case *x.Prompt == "query":
			q.IsQuery = &query
		case *x.Prompt == "STS":
			q.Options = map[string]any{"doc_template": "task: sentence similarity | query: {text}"}
		}
		full := floats(r.Rows(q)[0])
		if d := golden.Compare(full, want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
			t.Errorf("%q: %v", x.Text, d)
		}
		if q.Options == nil {
			q.Options = map[string]any{}
		}
		q.Options["dimensions"] = 8
		short, norm := floats(r.Rows(q)[0]), norm(full[:8])
		for j, v := range short {
			if len(short) != 8 || math.Abs(float64(v)-float64(full[j])/norm) > 1e-6 {
				t.Fatalf("%q: 8 columns are %v, of %v", x.Text, short, full)
			}
		}
	}
}
