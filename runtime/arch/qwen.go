package arch

import (
	"fmt"
	"io/fs"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// Qwen2 (Yang 2024, arXiv:2407.10671) and Qwen3 (Yang 2025, arXiv:2505.09388) are decoders: RMSNorm
// before each half of a block, rotary positions, heads of keys that several heads of queries share,
// a SwiGLU MLP and a causal mask. Qwen2 has biases on q, k and v. Qwen3 has a width of heads of its
// own and normalises each head of q and k before it is rotated. They are the encoders of
// Qwen3-Embedding, gte-Qwen2 and stella 1.5B, and the judges of Qwen3-Reranker, mxbai-rerank v2 and
// zerank. qwenconfig.go reads their configurations.

// qwen holds the packed weights. C and D are those of decoderSizes.
type qwen struct {
	config qwenConfig
	word   *engine.Weight // [vocab, C]
	rotary rotary
	blocks []qwenBlock
	norm   *engine.Weight // [C]
}

type qwenBlock struct {
	decoderLinears
	attentionNorm, mlpNorm *engine.Weight // [C]
	qNorm, kNorm           *engine.Weight // [D], or nil
}

// load packs a decoder of the family. It leaves p.prefix at the prefix of the decoder's tensors.
func (family *qwenFamily) load(dir fs.FS, p *packer) (encoder, error) {
	config, err := readQwenConfig(dir, family)
	if err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.HeadDim, "head_dim"); err != nil {
		return nil, err
	}
	p.findPrefix(decoderTable, decoderPrefixes)
	m := &qwen{config: config, word: p.table(config.VocabSize, config.HiddenSize, decoderTable)}
	p.refuseBlocksFrom(decoderLayers, keyed{"num_hidden_layers", config.Layers})
	m.rotary = p.rope(&config.rope, config.HeadDim, config.Positions)
	for i := range config.Layers {
		m.blocks = append(m.blocks, loadQwenBlock(p, &config, fmt.Sprintf(decoderBlock, i)))
		if p.err != nil {
			break
		}
	}
	m.norm = p.vector(config.HiddenSize, "norm.weight")
	return m, p.err
}

// loadQwenBlock packs the block whose tensors' names begin with at.
func loadQwenBlock(p *packer, config *qwenConfig, at string) (b qwenBlock) {
	c, d := config.HiddenSize, config.HeadDim
	b.attentionNorm = p.vector(c, at+"input_layernorm.weight")
	b.decoderLinears = config.pack(p, at, config.qkvBias, config.outBias)
	if config.headNorms {
		b.qNorm = p.vector(d, at+"self_attn.q_norm.weight")
		b.kNorm = p.vector(d, at+"self_attn.k_norm.weight")
	}
	b.mlpNorm = p.vector(c, at+"post_attention_layernorm.weight")
	return b
}

// forward records the decoder. State i is the sum of the branches up to block i; behind the last
// one comes the state that heads read, the normalised sum.
func (m *qwen) forward(r *engine.Recorder, p pass) engine.Value {
	x := r.EmbedLayerNorm(engine.Embedding{Word: m.word, Norm: engine.NoNorm})
	p.see(0, x)
	branch, sum := x, engine.NoValue
	for i := range m.blocks {
		branch, sum = m.block(r, p, branch, sum, i)
	}
	y, sum := m.add(r, branch, m.norm, sum)
	p.see(len(m.blocks), sum)
	p.see(len(m.blocks)+1, y)
	return y
}

// add adds a branch to the sum so far, which is NoValue before the first block, and returns the new
// sum, a stream, and its norm.
func (m *qwen) add(
	r *engine.Recorder, branch engine.Value, gamma *engine.Weight, sum engine.Value,
) (y, newSum engine.Value) {
	y, newSum = r.Norm(branch, engine.NormSpec{Norm: engine.RMSNorm, Gamma: gamma, Residual: sum,
		Eps: float32(m.config.RMSNormEps)})
	return y, r.Stream(newSum)
}

// block records block i. branch is what the block before adds to sum; the result is what this block
// adds to the new sum.
func (m *qwen) block(
	r *engine.Recorder, p pass, branch, sum engine.Value, i int,
) (_, newSum engine.Value) {
	a := m.attention()
	y, sum := m.qkv(r, p, branch, sum, i)
	r.Rope(y.q, y.k, m.rotation(i, p.behind))
	if p.behind {
		a.Segment = int32(i + 1)
	}
	if p.attendKept {
		y.k, y.v = r.KeepRows(y.k), r.KeepRows(y.v)
	}
	if i == len(m.blocks)-1 && p.keep != engine.PoolMean {
		y.q, sum = r.GatherRows(y.q, p.keep), r.GatherRows(sum, p.keep)
		if a.Which = p.keep; p.keep == engine.PoolLast {
			a.Mask = engine.FullMask // it sees all others in any case
		}
	}
	return m.behindAttention(r, p, r.Attention(y.q, y.k, y.v, a), sum, i)
}

// projected holds views of the columns of a block's q, k and v.
type projected struct {
	q, k, v engine.Value
	kv      engine.Value // k and v next to each other
}

// qkv records what stands before the attention of block i, and the new sum.
func (m *qwen) qkv(
	r *engine.Recorder, p pass, branch, sum engine.Value, i int,
) (y projected, newSum engine.Value) {
	b := &m.blocks[i]
	h, sum := m.add(r, branch, b.attentionNorm, sum)
	if i > 0 {
		p.see(i, sum)
	}
	qkv := p.linear(r, h, b.qkv, b.qkvBias, engine.NoAct, engine.NoValue)
	y.q, y.k, y.v = m.config.columns(r, qkv)
	y.kv = r.Columns(qkv, m.config.wide(), 2*m.config.narrow())
	return y, sum
}

// behindAttention records what follows the attention of block i.
func (m *qwen) behindAttention(
	r *engine.Recorder, p pass, attended, sum engine.Value, i int,
) (_, newSum engine.Value) {
	b := &m.blocks[i]
	o := p.linear(r, attended, b.out, b.outBias, engine.NoAct, engine.NoValue)
	h, sum := m.add(r, o, b.mlpNorm, sum)
	return b.mlp(r, p, h, m.config.gate), sum
}

// recordPrefix implements prefixed. Of the last block it computes the keys and values only, and the
// queries that are in one matrix with them.
func (m *qwen) recordPrefix(r *engine.Recorder, p pass) {
	branch := r.EmbedLayerNorm(engine.Embedding{Word: m.word, Norm: engine.NoNorm})
	sum := engine.NoValue
	for i := range m.blocks {
		var y projected
		y, sum = m.qkv(r, p, branch, sum, i)
		turn := m.rotation(i, false)
		if i == len(m.blocks)-1 {
			turn.Heads, turn.QGamma = turn.KVHeads, turn.KGamma
			turn.KVHeads, turn.KGamma = 0, nil
			r.Rope(y.k, engine.NoValue, turn)
			r.StateRows(y.kv, int32(i+1))
			return
		}
		r.Rope(y.q, y.k, turn)
		r.StateRows(y.kv, int32(i+1))
		branch, sum = m.behindAttention(r, p, r.Attention(y.q, y.k, y.v, m.attention()), sum, i)
	}
}

func (m *qwen) sharesPrefixes() bool {
	return !m.config.bidirectional && len(m.blocks) <= engine.MaxSegments
}

// rotation returns the rotation of q and k of block i.
func (m *qwen) rotation(i int, behind bool) engine.Rotation {
	b, a := &m.blocks[i], m.attention()
	return engine.Rotation{Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		Rot: m.rotary.columns, Cos: m.rotary.cos, Sin: m.rotary.sin, QGamma: b.qNorm, KGamma: b.kNorm,
		Eps: float32(m.config.RMSNormEps), Behind: behind}
}

func (m *qwen) attention() engine.Attention {
	a := m.config.attention(1 / math.Sqrt(float64(m.config.HeadDim)))
	a.Mask = engine.CausalMask
	if m.config.bidirectional {
		a.Mask = engine.FullMask
	}
	return a
}

func (m *qwen) linears() []linear {
	var all []linear
	for i := range m.blocks {
		all = append(all, m.blocks[i].linears(&m.config.decoderSizes, i)...)
	}
	return all
}

func (m *qwen) shape() encoderShape {
	c := &m.config
	perPair := float64(c.Layers) * c.perPair()
	if !c.bidirectional {
		perPair /= 2
	}
	return encoderShape{
		columns:   c.HiddenSize,
		words:     c.HiddenSize,
		blocks:    int(c.Layers),
		positions: c.Positions,
		vocab:     c.VocabSize,
		cost:      Cost{PerToken: float64(c.Layers) * c.perToken(), PerPair: perPair},
	}
}

// heads returns the names of the layers behind the decoder. A text is classified by its last token,
// where that has seen all others.
func (m *qwen) heads() headNames {
	h := headNames{words: "lm_head", tied: m.config.Tie, table: decoderTable, tag: "score"}
	if !m.config.bidirectional {
		h.logits, h.pooling, h.plainLogits, h.skipsPad = "score", engine.PoolLast, true, true
	}
	return h
}
