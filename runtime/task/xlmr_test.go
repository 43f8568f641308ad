package task_test

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// An XLM-R with a unigram tokenizer and a torch file for weights, from text to vector as
// sentence-transformers does it.
func TestVectorsOfXLMR(t *testing.T) {
	c := golden.Open(t, "st-xlmr-mean-torch")
	m := family(t, "test/xlmr", c.Dir, "  passage: {extends: default, adapter_options: {runtime: {doc_template: \"passage: {text}\"}}}\n")
	m.Tasks.Dense.Dim, m.MaxSequenceLength = 0, 0 // as the files say
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

// ELECTRA behind WordPiece and ALBERT behind its unigram tokenizer with normalisers of its own,
// from text to vector.
func TestVectorsOfElectraAndAlbert(t *testing.T) {
	for _, name := range []string{"st-electra-cls", "st-albert-mean"} {
		c := golden.Open(t, name)
		r := start(t, nil, nil, adHoc(t, "test/model", c.Dir))
		for i, x := range goldenTexts(t, c) {
			compare(t, name, i, float32s(r.Rows(&Request{Model: "test/model", Texts: []string{x.Text}}))[0], row(c, i))
		}
	}
}
