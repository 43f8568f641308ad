package task_test

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// An XLM-R model with a unigram tokenizer and torch weights gives the vectors of
// sentence-transformers for texts.
func TestVectorsOfXLMR(t *testing.T) {
	c := golden.Open(t, "st-xlmr-mean-torch")
	m := family(t, "test/xlmr", c.Dir,
		"  passage: {extends: default, adapter_options: {runtime: {doc_template: \"passage: {text}\"}}}\n")
	m.Tasks.Dense.Dim, m.MaxSequenceLength = 0, 0 // taken from the model's files
	r := start(t, nil, nil, m)
	query := true
	for i, x := range goldenTexts(t, c) {
		q := &Request{Model: "test/xlmr", Texts: []string{x.Text}}
		switch {
		case x.Prompt != nil && *x.Prompt == "passage":
			q.Model = "test/xlmr:passage"
		case x.Prompt != nil:
			q.IsQuery = &query
		}
		compare(t, q.Model, i, float32s(r.Rows(q))[0], row(c, i))
	}
}

// ELECTRA with WordPiece, and ALBERT with a unigram tokenizer that has its own normalisers, give
// the right vectors for texts.
func TestVectorsOfElectraAndAlbert(t *testing.T) {
	for _, name := range []string{"st-electra-cls", "st-albert-mean"} {
		c := golden.Open(t, name)
		r := start(t, nil, nil, adHoc(t, "test/model", c.Dir))
		for i, x := range goldenTexts(t, c) {
			compare(t, name, i,
				float32s(r.Rows(&Request{Model: "test/model", Texts: []string{x.Text}}))[0], row(c, i))
		}
	}
}
