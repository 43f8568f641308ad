package load

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Each operation has its share, each text is its own, and models that are not there are not asked.
func TestRequestsAreShared(t *testing.T) {
	all := Models{Encode: []string{"a", "b"}, Score: "s", Extract: "x"}
	for name, c := range map[string]struct {
		models Models
		least  map[string]int // of 4,000
	}{
		"all":    {all, map[string]int{Encode: 1200, Score: 600, Extract: 600, Embeddings: 600}},
		"encode": {Models{Encode: all.Encode}, map[string]int{Encode: 1200, Embeddings: 600}},
	} {
		rng, seen, texts := rand.New(rand.NewPCG(1, 2)), map[string]int{}, map[string]bool{}
		for i := range 4000 {
			r := newRequest(rng, fmt.Sprint("id-", i), c.models, 200)
			seen[r.Op]++
			for _, text := range r.Texts {
				if texts[text] {
					t.Fatalf("%s: %q is there twice", name, text)
				}
				texts[text] = true
			}
			if n := len(r.Texts); n < 1 || n > 200 || r.Op == Score && n < 2 || r.Op == Extract &&
				(n > 40 || len(r.Labels) < 2 || r.Model != "x") {
				t.Fatalf("%s: %s of %d items", name, r.Op, n)
			}
		}
		for _, op := range []string{Encode, Score, Extract, Embeddings} {
			if n, least := seen[op], c.least[op]; n < least || least == 0 && n > 0 {
				t.Errorf("%s: %d of %s, at least %d", name, n, op, least)
			}
		}
	}
}
