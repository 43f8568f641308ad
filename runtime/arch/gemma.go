package arch

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
)

// Gemma 3 (Gemma Team 2025, arXiv:2503.19786) as EmbeddingGemma has it (Vera 2025,
// arXiv:2509.20354): a decoder whose tokens see both ways. Each half of a block is normalised
// before and behind, by RMSNorms whose gammas are stored less 1. Word rows are multiplied by √C. A
// head of q and k is normalised before it is rotated, heads of keys are shared by heads of
// queries, and the MLP is gated. Every sixth block attends to the whole text and the others to a
// window around each token; the two kinds have rotary embeddings of their own.

// gemmaConfig holds the keys of config.json that the computation depends on.
type gemmaConfig struct {
	decoderSizes

	Activation    string   `json:"hidden_activation"`
	RMSNormEps    float64  `json:"rms_norm_eps"`
	AttentionBias bool     `json:"attention_bias"`
	Scalar        float64  `json:"query_pre_attn_scalar"` // scores are divided by its root
	BothWays      bool     `json:"use_bidirectional_attention"`
	SlidingWindow *int64   `json:"sliding_window"` // tokens, before and behind together
	LayerTypes    []string `json:"layer_types"`    // wins over GlobalEvery
	GlobalEvery   int64    `json:"sliding_window_pattern"`

	GlobalTheta float64                    `json:"rope_theta"`
	LocalTheta  float64                    `json:"rope_local_base_freq"`
	Scaling     map[string]json.RawMessage `json:"rope_scaling"` // of global blocks
	Parameters  map[string]json.RawMessage `json:"rope_parameters"`
}

// gemmaNeutral lists keys with the value that changes nothing, as qwenNeutral does. transformers
// reads sliding_window_pattern and not the name with a line before it, which it writes.
var gemmaNeutral = map[string]any{
	"attn_logit_softcapping": nil, "final_logit_softcapping": nil,
	"num_experts": nil, "enable_moe_block": false, "mlp_bias": false, "add_cross_attention": false,
	"vision_config": nil, "query_rescale_scalar": nil,
}

// readGemmaConfig reads and checks config.json. Absent keys have the defaults of transformers.
// Sizes are required.
func readGemmaConfig(dir fs.FS) (gemmaConfig, error) {
	c := gemmaConfig{decoderSizes: decoderSizes{HeadDim: 256}, Activation: "gelu_pytorch_tanh",
		RMSNormEps: 1e-6, Scalar: 256, GlobalEvery: 6, GlobalTheta: 1e6, LocalTheta: 1e4}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if err := refuseUnknownMeaning(dir, gemmaNeutral); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c *gemmaConfig) check() error {
	if err := c.checkSizes(); err != nil {
		return err
	}
	if err := checkSizes(sized{"sliding_window_pattern", c.GlobalEvery, 1, 1 << 20}); err != nil {
		return err
	}
	if err := checkEpsilon("rms_norm_eps", c.RMSNormEps); err != nil {
		return err
	}
	if !(c.Scalar >= 1e-6 && c.Scalar <= 1e6) {
		return refuse(configFile, "query_pre_attn_scalar", "is %g; 1e-06 to 1e+06 is possible", c.Scalar)
	}
	if err := checkNamed("hidden_activation", c.Activation, gates); err != nil {
		return err
	}
	if !c.BothWays {
		return refuse(configFile, "use_bidirectional_attention",
			"is false or missing; Gemma 3 is served where it is true, as in EmbeddingGemma: its causal windows have no attention here")
	}
	return c.checkBlocks()
}

// checkBlocks checks the kinds of blocks, and makes the list where the file has only a number.
func (c *gemmaConfig) checkBlocks() error {
	if c.LayerTypes == nil {
		for i := range c.Layers {
			kind := localBlock
			if (i+1)%c.GlobalEvery == 0 {
				kind = globalBlock
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if err := checkKinds(c.LayerTypes, c.Layers); err != nil {
		return err
	}
	if !slices.Contains(c.LayerTypes, localBlock) {
		return nil
	}
	if c.SlidingWindow == nil {
		return refuse(configFile, "sliding_window",
			"is null or missing; local blocks need a window, 2 to %d tokens wide", 1<<20)
	}
	if *c.SlidingWindow < 2 || *c.SlidingWindow > 1<<20 {
		return refuse(configFile, "sliding_window", "is %d; a window is 2 to %d tokens wide",
			*c.SlidingWindow, 1<<20)
	}
	return nil
}

// window returns how far a token of a local block sees in each direction, the last one included. It
// is 0 where there are only global blocks.
func (c *gemmaConfig) window() int64 {
	if c.SlidingWindow == nil {
		return 0
	}
	return *c.SlidingWindow / 2
}

// gemma holds the packed weights. C and D are those of decoderSizes.
type gemma struct {
	config gemmaConfig
	word   *engine.Weight // [vocab, C]
	scale  float32        // of its rows
	blocks []gemmaBlock
	norm   *engine.Weight // [C]
}

// gemmaBlock is one block. The norms are RMSNorms, and their gammas lack 1.
type gemmaBlock struct {
	decoderLinears
	local                     bool
	rotary                    rotary
	beforeAttention, behindIt *engine.Weight // [C]
	qNorm, kNorm              *engine.Weight // [D]
	beforeMLP, behindMLP      *engine.Weight // [C]
}

// loadGemma packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadGemma(dir fs.FS, p *packer) (encoder, error) {
	config, err := readGemmaConfig(dir)
	if err != nil {
		return nil, err
	}
	global := newRope(config.GlobalTheta, config.Positions)
	local := newRope(config.LocalTheta, config.Positions)
	if err := readKindRopes(config.Parameters, kindRope{globalBlock, &global, config.Scaling},
		kindRope{kind: localBlock, to: &local}); err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.HeadDim, "head_dim"); err != nil {
		return nil, err
	}
	if err := p.avoidF16("the sums of Gemma 3's blocks go beyond its largest value, 65504"); err != nil {
		return nil, err
	}
	p.findPrefix(decoderTable, decoderPrefixes)
	p.refuseBlocksFrom(decoderLayers, keyed{"num_hidden_layers", config.Layers})
	m := &gemma{config: config, word: p.table(config.VocabSize, config.HiddenSize, decoderTable),
		scale: gemmaScale(config.HiddenSize, p.compute)}
	tables := map[string]rotary{globalBlock: p.rope(&global, config.HeadDim, config.Positions),
		localBlock: p.rope(&local, config.HeadDim, config.Positions)}
	for i, kind := range config.LayerTypes {
		b := loadGemmaBlock(p, &config, fmt.Sprintf(decoderBlock, i))
		b.local, b.rotary = kind == localBlock, tables[kind]
		m.blocks = append(m.blocks, b)
		if p.err != nil {
			return nil, p.err
		}
	}
	m.norm = p.vector(config.HiddenSize, "norm.weight")
	return m, p.err
}

// gemmaScale returns the factor of word rows, √c. transformers rounds it to the type that the model
// runs in: 27.75 in place of 27.71 for EmbeddingGemma in bf16.
func gemmaScale(c int64, compute engine.Compute) float32 {
	scale := float32(math.Sqrt(float64(c)))
	if compute == engine.ComputeF32 {
		return scale
	}
	return roundBF16(scale)
}

// loadGemmaBlock packs the block whose tensors' names begin with at.
func loadGemmaBlock(p *packer, config *gemmaConfig, at string) (b gemmaBlock) {
	c, d := config.HiddenSize, config.HeadDim
	b.beforeAttention = p.vector(c, at+"input_layernorm.weight")
	b.decoderLinears = config.pack(p, at, config.AttentionBias, config.AttentionBias)
	b.qNorm, b.kNorm = p.vector(d, at+"self_attn.q_norm.weight"), p.vector(d, at+"self_attn.k_norm.weight")
	b.behindIt = p.vector(c, at+"post_attention_layernorm.weight")
	b.beforeMLP = p.vector(c, at+"pre_feedforward_layernorm.weight")
	b.behindMLP = p.vector(c, at+"post_feedforward_layernorm.weight")
	return b
}

// forward records the encoder. State i is the sum of the branches up to block i.
func (m *gemma) forward(r *engine.Recorder, p pass) engine.Value {
	x := r.Stream(r.EmbedLayerNorm(engine.Embedding{Word: m.word, Norm: engine.NoNorm, Scale: m.scale}))
	p.see(0, x)
	branch, sum := x, engine.NoValue
	for i := range m.blocks {
		branch, sum = m.block(r, p, branch, sum, i)
	}
	y, sum := m.add(r, branch, m.norm, sum)
	p.see(len(m.blocks), sum)
	return y
}

// add adds a branch to the sum so far, which is NoValue before the first block, and returns the new
// sum, a stream, and its norm.
func (m *gemma) add(
	r *engine.Recorder, branch engine.Value, gamma *engine.Weight, sum engine.Value,
) (y, newSum engine.Value) {
	y, newSum = r.Norm(branch, engine.NormSpec{Norm: engine.RMSNorm, Gamma: gamma, Residual: sum,
		Eps: float32(m.config.RMSNormEps), WeightOffset: 1})
	return y, r.Stream(newSum)
}

// normAlone normalises what a half of a block adds to the sum.
func (m *gemma) normAlone(r *engine.Recorder, x engine.Value, gamma *engine.Weight) engine.Value {
	return r.RMSNorm(x, gamma, float32(m.config.RMSNormEps), 1)
}

// block records block i. branch is what the block before adds to sum; the result is what this block
// adds to the new sum.
func (m *gemma) block(
	r *engine.Recorder, p pass, branch, sum engine.Value, i int,
) (_, newSum engine.Value) {
	b, a := &m.blocks[i], m.config.attention(1/math.Sqrt(m.config.Scalar))
	if b.local {
		a.Mask, a.Window = engine.WindowMask, int32(m.config.window())
	}
	h, sum := m.add(r, branch, b.beforeAttention, sum)
	if i > 0 {
		p.see(i, sum)
	}
	q, k, v := m.config.columns(r, p.linear(r, h, b.qkv, b.qkvBias, engine.NoAct, engine.NoValue))
	r.Rope(q, k, engine.Rotation{Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		Rot: b.rotary.columns, Cos: b.rotary.cos, Sin: b.rotary.sin, QGamma: b.qNorm, KGamma: b.kNorm,
		Eps: float32(m.config.RMSNormEps), WeightOffset: 1})
	if p.attendKept { // such texts are no longer than a window (Model.record)
		a.Mask, a.Window = engine.FullMask, 0
		k, v = r.KeepRows(k), r.KeepRows(v)
	}
	if i == len(m.blocks)-1 && p.keep != engine.PoolMean {
		q, sum = r.GatherRows(q, p.keep), r.GatherRows(sum, p.keep)
		a.Which = p.keep
	}
	o := p.linear(r, r.Attention(q, k, v, a), b.out, b.outBias, engine.NoAct, engine.NoValue)
	h, sum = m.add(r, m.normAlone(r, o, b.behindIt), b.beforeMLP, sum)
	h = b.mlp(r, p, h, gates[m.config.Activation])
	return m.normAlone(r, h, b.behindMLP), sum
}

func (m *gemma) linears() []linear {
	var all []linear
	for i := range m.blocks {
		all = append(all, m.blocks[i].linears(&m.config.decoderSizes, i)...)
	}
	return all
}

func (m *gemma) shape() encoderShape {
	c := &m.config
	s := encoderShape{
		columns:   c.HiddenSize,
		words:     c.HiddenSize,
		blocks:    int(c.Layers),
		positions: c.Positions,
		vocab:     c.VocabSize,
		cost:      Cost{Window: int(c.window())},
	}
	for _, b := range m.blocks {
		s.cost.PerToken += c.perToken()
		if b.local {
			s.cost.PerNear += c.perPair()
		} else {
			s.cost.PerPair += c.perPair()
		}
	}
	return s
}

// heads: published models have none behind this encoder but dense modules.
func (m *gemma) heads() headNames { return headNames{} }
