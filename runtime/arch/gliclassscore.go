package arch

import (
	"fmt"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

func sqrt32(n int64) float32 { return float32(math.Sqrt(float64(n))) }

// mlp packs the linears of a torch Sequential with those numbers. Each of sizes is the rows of one;
// the last has no activation.
func (h *gliclassHead) mlp(p *packer, name string, in int64, act engine.Act, numbers []int,
	sizes ...int64) {
	for i, n := range sizes {
		a := act
		if i == len(sizes)-1 {
			a = engine.NoAct
		}
		h.last = append(h.last, p.layer(n, in, fmt.Sprintf("%s.%d", name, numbers[i]), a))
		in = n
	}
}

// loadWeightedDot packs the scorer that reads a text's row t and a label's row l, each projected to
// two rows of C columns, and joins t₀, l₀ and t₁·l₁ for an MLP. Nothing of the first layer is
// folded into the projections: a ReLU follows the sum of the three parts, and the third is no sum
// of a text's and a label's part.
func (h *gliclassHead) loadWeightedDot(p *packer) {
	c := h.config.columns
	for _, x := range []struct {
		to   *[2]layer
		name string
	}{{&h.textProject, "scorer.proj_text"}, {&h.labelProject, "scorer.proj_label"}} {
		x.to[0] = p.layer(2*c, c, x.name, engine.NoAct)
	}
	h.mlp(p, "scorer.out_mlp", 3*c, engine.ReLU, []int{0, 3}, 4*c, 1)
}

// loadMLP packs the scorer that joins a text's and a label's row for an MLP, whose width no key
// sets.
func (h *gliclassHead) loadMLP(p *packer) {
	h.mlp(p, "scorer.mlp", 2*h.config.columns, engine.ReLU, []int{0, 2, 4}, 256, 128, 1)
}

// gliclassHopfield is the scorer whose text goes to the labels that are most like it: label i
// becomes l_i + W_v·(p_i·t) with p the softmax of 4·(W_q·l)·(W_k·t) over the text's labels.
type gliclassHopfield struct {
	q, k, v layer
	spread  layer // [C, 1] of ones
}

// hopfieldBeta is the factor of the products, which no key sets.
const hopfieldBeta = 4

func (h *gliclassHead) loadHopfield(p *packer) {
	c, x := h.config.columns, &h.hopfield
	for _, l := range []struct {
		to   *layer
		name string
	}{{&x.q, "scorer.q_proj"}, {&x.k, "scorer.k_proj"}, {&x.v, "scorer.v_proj"}} {
		l.to.weight = p.linear(c, c, l.name+".weight")
	}
	ones := make([]float32, c)
	for i := range ones {
		ones[i] = 1
	}
	x.spread.weight = p.values(engine.LinearWeight, 1, ones)
	h.mlp(p, "scorer.mlp", c, engine.ReLU, []int{0, 2, 4}, 256, 128, 1)
}

// retrieve records the labels' rows behind what they take of the text.
func (h *gliclassHead) retrieve(r *recording, text, classes engine.Value) engine.Value {
	x := &h.hopfield
	k := r.TakeSequence(x.k.apply(r.Recorder, text), engine.RowsWords)
	p := r.Softmax(r.Dots(x.q.apply(r.Recorder, classes), k), hopfieldBeta)
	share := r.Product(x.spread.apply(r.Recorder, p), r.TakeSequence(text, engine.RowsWords))
	return r.Linear(share, x.v.weight, nil, engine.NoAct, classes)
}

// gliclassCross is the scorer whose labels attend to the text's rows.
type gliclassCross struct {
	q, k, v, out                                    layer
	qGamma, qBeta, kvGamma, kvBeta, outGamma, outBe *engine.Weight
}

func (h *gliclassHead) loadCrossAttention(p *packer) {
	c, x := h.config.columns, &h.cross
	x.q, x.k = p.layer(c, c, "scorer.q", engine.NoAct), p.layer(c, c, "scorer.k", engine.NoAct)
	x.v, x.out = p.layer(c, c, "scorer.v", engine.NoAct), p.layer(c, c, "scorer.out", engine.NoAct)
	x.qGamma, x.qBeta = p.norm(c, "scorer.q_norm")
	x.kvGamma, x.kvBeta = p.norm(c, "scorer.kv_norm")
	x.outGamma, x.outBe = p.norm(c, "scorer.norm")
	h.mlp(p, "scorer.score_mlp", 2*c, engine.GELU, []int{0, 2, 4}, h.config.ScorerMLP,
		h.config.ScorerMLP/2, 1)
	if err := p.checkHeadDim(c/h.config.ScorerHeads, "scorer_num_heads"); err != nil {
		p.fail(err)
	}
}

// torchEps is the epsilon of torch's LayerNorm.
const torchEps = 1e-5

// score records a logit for each label. text has one row a sequence, or for cross-attn the text's
// rows.
func (h *gliclassHead) score(r *recording, text, classes engine.Value) engine.Value {
	c := h.config.columns
	switch h.config.Scorer {
	case "simple":
		return r.Dots(r.TakeSequence(text, engine.RowsWords), classes)
	case "weighted-dot":
		t := r.TakeSequence(h.textProject[0].apply(r.Recorder, text), engine.RowsWords)
		l := h.labelProject[0].apply(r.Recorder, classes)
		product := r.Product(r.Columns(t, c, c), r.Columns(l, c, c))
		classes = r.Join(r.Columns(t, 0, c), r.Columns(l, 0, c), product)
	case "mlp":
		classes = r.Join(r.TakeSequence(text, engine.RowsWords), classes)
	case "hopfield":
		classes = h.retrieve(r, text, classes)
	case "cross-attn":
		classes = r.Join(h.attend(r, text, classes), classes)
	}
	return applyAll(r.Recorder, classes, h.last)
}

// attend records what the labels read of the text.
func (h *gliclassHead) attend(r *recording, text, classes engine.Value) engine.Value {
	x := &h.cross
	q := x.q.apply(r.Recorder, r.LayerNorm(classes, x.qGamma, x.qBeta, torchEps))
	k := x.k.apply(r.Recorder, r.LayerNorm(text, x.kvGamma, x.kvBeta, torchEps))
	v := x.v.apply(r.Recorder, text)
	heads := int32(h.config.ScorerHeads)
	a := r.Attention(q, k, v, engine.Attention{Heads: heads, KVHeads: heads,
		HeadDim: int32(h.config.columns / h.config.ScorerHeads)})
	return r.LayerNorm(x.out.apply(r.Recorder, a), x.outGamma, x.outBe, torchEps)
}
