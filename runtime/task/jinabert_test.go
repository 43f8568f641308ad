package task_test

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A whole directory of Jina's BERT gives the mean of the published code's states for texts, alone
// and in one batch.
func TestJinaBertEmbedderEqualsThePublishedCode(t *testing.T) {
	const name = "text-jina-embed"
	c := golden.Open(t, name)
	r := start(t, nil, nil, entry(t, "embed", c.Dir, "candle",
		"tasks: {encode: {dense: {dim: 32}}}"))
	texts := readTexts[string](t, name)
	want, shape := c.Float32("vectors")
	for _, batch := range [][]string{texts, texts[1:2]} {
		res, err := r.Encode(t.Context(), &Request{Model: "embed", Texts: batch})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range res.Rows {
			at := slices.Index(texts, batch[i])
			if d := golden.Compare(floats(row), want[at*shape[1]:(at+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%q: %v", batch[i], d)
			}
		}
	}
}
