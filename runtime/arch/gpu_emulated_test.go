//go:build native && cuda && emulated

package arch

import (
	"math"
	"os"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
)

// eachCard runs f with a GPU of each capability, behind the stand-in for the driver.
func eachCard(t *testing.T, f func(t *testing.T, dev *engine.Device)) {
	t.Helper()
	for _, capability := range cardsInTurn(t) {
		t.Run("sm_"+capability, func(t *testing.T) {
			if _, err := engine.StandIn("capability " + capability); err != nil {
				t.Fatal(err)
			}
			f(t, open(t, engine.Options{Kind: engine.CUDA}))
		})
	}
}

// cards are a compute capability of each family of kernels.
var cards = []string{"8.0", "8.9", "9.0"}

// cardsInTurn gives all cards, or one of them if SIE_TEST_TURN has a number, so that three turns in
// a row have all.
func cardsInTurn(t *testing.T) []string {
	t.Helper()
	turn, given := testrig.Turn(t)
	if !given {
		return cards
	}
	at := turn % len(cards)
	return cards[at : at+1]
}

// inTurn runs f with each card in one of its classes, and with one of `parts` parts of a test.
// Every third turn is the same card's: it takes the parts one after another, and behind the last
// one the next class. So a card has had every part after 3·parts turns, and every part in every
// class after as many turns for each class. Where all cards run, they differ in part and class.
func inTurn(t *testing.T, parts int, f inPart) {
	t.Helper()
	turn, given := testrig.Turn(t)
	card := turn % len(cards)
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		of, all := turn/len(cards), computes(t, dev)
		compute := all[(of/parts+card)%len(all)]
		t.Run(compute.String(), func(t *testing.T) { f(t, dev, compute, (of+card)%parts) })
		if !given {
			card++
		}
	})
}

// classesOfCase gives the classes that case i of a list, the golden model name, runs in: all that
// the card serves it in, or, if SIE_TEST_TURN has a number, one of them. Neighbours have different
// ones. Every third turn is the same card's, and each case then has its next class: as many of
// those turns as there are classes have all.
func classesOfCase(t *testing.T, dev *engine.Device, name string, i int) []engine.Compute {
	t.Helper()
	all := computesFor(t, dev, name)
	turn, given := testrig.Turn(t)
	if !given {
		return all
	}
	at := (turn/len(cards) + i) % len(all)
	return all[at : at+1]
}

// The real all-MiniLM-L6-v2 against sentence-transformers in float32. An emulated GPU takes minutes
// for the whole set of 1,100 texts, which SIE_GOLDEN_ALL=1 runs; otherwise four queries and four
// passages run. With a number in SIE_TEST_TURN one card and class of three, so that three turns in
// a row have all.
func TestGPUMiniLM(t *testing.T) {
	dir := minilmDir(t)
	c := golden.Open(t, "minilm")
	all := goldenBatch(c)
	vectors, _ := c.Float32("vectors")
	queries, order := 4, append(indices(0, 4), indices(100, 104)...)
	if os.Getenv("SIE_GOLDEN_ALL") == "1" {
		queries, order = 100, indices(0, all.seqs())
	}
	turn, given := testrig.Turn(t)
	for i, card := range []struct {
		capability string
		compute    engine.Compute
		// cosine at least, per text; the ranking's NDCG@10 at least, with all texts
		cosine, ndcg float64
	}{{"8.0", engine.ComputeF16, 0.99999, 0.999}, {"9.0", engine.ComputeBF16, 0.9995, 0.999},
		{"9.0", engine.ComputeFP8, 0.99, 0.99}} {
		if given && i != turn%3 {
			continue
		}
		t.Run("sm_"+card.capability+"/"+card.compute.String(), func(t *testing.T) {
			if _, err := engine.StandIn("capability " + card.capability); err != nil {
				t.Fatal(err)
			}
			m, r := load(t, open(t, engine.Options{Kind: engine.CUDA}), dir,
				Options{Task: Embed, Compute: card.compute})
			got := embedAll(t, m, r, all.pick(order...), m.Normalize, 1024)
			want := make([]float32, 0, len(got))
			for _, i := range order {
				want = append(want, vectors[i*m.Dim:(i+1)*m.Dim]...)
			}
			minCosine, sum, maxAbs := 1.0, 0.0, 0.0
			for i := range order {
				d := golden.Compare(got[i*m.Dim:(i+1)*m.Dim], want[i*m.Dim:(i+1)*m.Dim])
				minCosine, sum, maxAbs = min(minCosine, d.Cosine), sum+d.Cosine, max(maxAbs, d.MaxAbs)
				if math.Abs(d.NormRatio-1) > 1e-5 {
					t.Errorf("text %d: %v", order[i], d)
				}
			}
			ndcg := golden.NDCG10(got, want, m.Dim, queries)
			t.Logf("%d texts: max abs %.3g, min cosine %.6f, mean %.6f, NDCG@10 %.5f, packed %d bytes",
				len(order), maxAbs, minCosine, sum/float64(len(order)), ndcg, m.Bytes())
			if minCosine < card.cosine || ndcg < card.ndcg {
				t.Errorf("min cosine %.6f, NDCG@10 %.5f; bounds %v and %v",
					minCosine, ndcg, card.cosine, card.ndcg)
			}
		})
	}
}
