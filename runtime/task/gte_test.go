package task_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// prompted is a text with the name of the prompt that the library put before it.
type prompted struct {
	Text   string
	Prompt string `json:"prompt_name"`
}

// Whole directories give the vectors of sentence-transformers for texts, with and without a prompt:
// GTE as arctic-embed-m-v2.0 and stella are saved, and nomic-embed-text-v1.5.
func TestPostNormEmbeddersEqualTheLibrary(t *testing.T) {
	for name, how := range map[string]struct {
		adapter string
		options map[string]any
	}{
		"text-gte-embed": {"sentence_transformer", map[string]any{"query_template": "query: {text}"}},
		"text-nomic": {"sentence_transformer", map[string]any{"normalize": false,
			"query_template": "search_query: {text}", "doc_template": "search_document: {text}"}},
		"text-gte-stella": {"rope_flash", map[string]any{"normalize": false,
			"query_template": "Instruct: {instruction}\nQuery: {text}", "default_instruction": "find"}},
	} {
		c := golden.Open(t, name)
		want, shape := c.Float32("vectors")
		r := start(t, nil, nil, entry(t, "embed", c.Dir, how.adapter,
			fmt.Sprintf("tasks: {encode: {dense: {dim: %d}}}", shape[1])))
		for i, text := range readTexts[prompted](t, name) {
			query, options := strings.HasSuffix(text.Prompt, "query"), maps.Clone(how.options)
			if text.Prompt == "" {
				delete(options, "doc_template")
			}
			res, err := r.Encode(t.Context(),
				&Request{Model: "embed", Texts: []string{text.Text}, IsQuery: &query, Options: options})
			if err != nil {
				t.Fatal(err)
			}
			got := floats(res.Rows[0])
			if d := golden.Compare(got, want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%s: %+v: %v", name, text, d)
			}
		}
	}
}

// Scores are those of CrossEncoder.
func TestGteRerankerEqualsTheLibrary(t *testing.T) {
	const name = "text-gte-rerank"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "rank", c.Dir, "cross_encoder", "tasks: {score: {}}"))
	want, _ := c.Float32("scores")
	for i, pair := range readTexts[[2]string](t, name) {
		if pair[0] == "" {
			continue // a query must not be empty
		}
		res, err := r.Score(t.Context(), &ScoreRequest{Model: "rank", Query: pair[0], Texts: pair[1:]})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(res.Scores[0]-float64(want[i])) > 1e-5 {
			t.Errorf("%q: %v, CrossEncoder's score is %v", pair, res.Scores[0], want[i])
		}
	}
}

// Sparse rows of GTE have no weights for special tokens: documents by the head, queries by the
// table. The same directory behind the reference's other adapter has them.
func TestGteSparseEqualsTheLibrary(t *testing.T) {
	const name = "text-gte-sparse"
	c := golden.Open(t, name)
	texts := readTexts[string](t, name)
	const special = 5 // the tokenizer's first ids
	for adapter, drops := range map[string]bool{"gte_sparse_flash": true, "splade_flash": false} {
		r := start(t, nil, nil, entry(t, "sp", c.Dir, adapter, "tasks: {encode: {sparse: {dim: 85}}}"))
		for key, query := range map[string]bool{"documents": false, "queries": true} {
			want, shape := c.Float32(key)
			seen := false
			for i, text := range texts {
				if query && len(text) > 60 {
					continue // the library cuts queries without counting special tokens
				}
				res, err := r.Encode(t.Context(), &Request{Model: "sp", Texts: []string{text},
					OutputTypes: []string{"sparse"}, IsQuery: &query})
				if err != nil {
					t.Fatal(err)
				}
				row := make([]float32, shape[1])
				for j, column := range ints(res.Sparse[0].Columns) {
					if column < special {
						seen = true
						continue
					}
					row[column] = floats(res.Sparse[0].Values)[j]
				}
				if d := golden.Compare(row, want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
					t.Errorf("%s: %s %q: %v", adapter, key, text, d)
				}
			}
			if !query && seen == drops {
				t.Errorf("%s: %s have weights for special tokens: %v", adapter, key, seen)
			}
		}
	}
}
