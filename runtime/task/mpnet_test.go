package task_test

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A whole MPNet directory gives the vectors of sentence-transformers for texts, alone and in one
// batch.
func TestMPNetEmbedderEqualsTheLibrary(t *testing.T) {
	const name = "text-mpnet-embed"
	c := golden.Open(t, name)
	r := start(t, nil, nil, adHoc(t, "test/mpnet", c.Dir))
	texts := readTexts[string](t, name)
	want, shape := c.Float32("vectors")
	for _, batch := range [][]string{texts, texts[1:2]} {
		res, err := r.Encode(t.Context(), &Request{Model: "test/mpnet", Texts: batch})
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
