package arch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// shareItems is how many random texts the share of decisions that differ is taken of.
const shareItems = 2000

// Of the decisions on 2,000 random texts, whether a span or a word has a label, at most 5 in 1,000
// are others in bfloat16 than in float32, on every path of the machine that has it.
func TestGLiNERDecisionsInBF16(t *testing.T) {
	for _, o := range isas {
		dev := open(t, o)
		if info, err := dev.Info(); err != nil || !info.Supports(engine.ComputeBF16) {
			continue
		}
		t.Run(fmt.Sprintf("kind=%s/isa=%s", o.Kind, o.ISA), func(t *testing.T) { checkDecisions(t, dev) })
	}
}

func checkDecisions(t *testing.T, dev *engine.Device) {
	for _, name := range []string{"gliner-bert-span", "gliner-deberta-span", "gliner-bert-token"} {
		c := golden.Open(t, name)
		exact, er := load(t, dev, c.Dir, Options{Task: Spans, Compute: engine.ComputeF32})
		rough, rr := load(t, dev, c.Dir, Options{Task: Spans, Compute: engine.ComputeBF16})
		random := rand.New(rand.NewPCG(22, 7))
		decisions, differ, above := 0, 0, 0
		for range shareItems / 20 {
			texts := make([]glinerText, 20)
			for i := range texts {
				texts[i] = randomText(random, exact.Vocab)
			}
			want, got := allFound(t, exact, er, texts), allFound(t, rough, rr, texts)
			if len(want) != len(got) {
				t.Fatalf("%d logits, and %d in bfloat16", len(want), len(got))
			}
			for i := range want {
				decisions++
				if want[i] > 0 {
					above++
				}
				if want[i] > 0 != (got[i] > 0) {
					differ++
				}
			}
		}
		share := float64(differ) / float64(decisions)
		t.Logf("%s: %d of %d decisions differ (%.3f %%), %d are above", name, differ, decisions, 100*share,
			above)
		if share > 0.005 || above < decisions/100 {
			t.Errorf("%s: %.3f %% of %d decisions differ, %d are above", name, 100*share, decisions, above)
		}
	}
}

// randomText makes a text of 1 to 30 words, of 1 to 3 tokens each, behind two labels.
func randomText(random *rand.Rand, vocab int) (t glinerText) {
	token := func() int32 { return 5 + random.Int32N(int32(vocab)-5-3) }
	marker, sep := int32(vocab)-2, int32(vocab)-1
	t.ids = []int32{2}
	for range 2 {
		t.markers.First = append(t.markers.First, int32(len(t.ids)))
		t.ids = append(t.ids, marker, token())
	}
	t.ids = append(t.ids, sep)
	for range 1 + random.IntN(30) {
		t.words.First = append(t.words.First, int32(len(t.ids)))
		for range 1 + random.IntN(3) {
			t.ids = append(t.ids, token())
		}
		t.words.Last = append(t.words.Last, int32(len(t.ids))-1)
	}
	t.ids = append(t.ids, 3)
	return t
}

// allFound returns all logits of texts, in order.
func allFound(t *testing.T, m *Model, r *engine.Runner, texts []glinerText) (out []float32) {
	t.Helper()
	spans, pairs := found(t, m, r, float32(math.Inf(-1)), texts...)
	for i := range texts {
		if m.GLiNER.TokenLevel {
			for _, p := range pairs[i] {
				out = append(out, p.Logits[:]...)
			}
			continue
		}
		for _, s := range spans[i] {
			out = append(out, s.Logit)
		}
	}
	return out
}
