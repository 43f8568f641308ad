package arch

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
)

// ModernBERT (Warner 2024, arXiv:2412.13663) normalises before each part of a block, rotates
// queries and keys, and gates its MLP. Every third block attends to the whole text and the others
// to a window around each token; the two kinds have rotary embeddings of their own. There are no
// biases unless a configuration asks for them. It is the encoder of gte-modernbert, granite r2,
// Ettin, mmBERT and of several ColBERT models.

// modernbertConfig holds the keys of config.json that the computation depends on.
type modernbertConfig struct {
	HiddenSize       int64    `json:"hidden_size"`
	Heads            int64    `json:"num_attention_heads"`
	Layers           int64    `json:"num_hidden_layers"`
	IntermediateSize int64    `json:"intermediate_size"`
	VocabSize        int64    `json:"vocab_size"`
	Positions        int64    `json:"max_position_embeddings"`
	Activation       string   `json:"hidden_activation"`
	NormEps          float64  `json:"norm_eps"`
	GlobalEvery      int64    `json:"global_attn_every_n_layers"`
	LayerTypes       []string `json:"layer_types"` // wins over GlobalEvery
	LocalAttention   int64    `json:"local_attention"`

	NormBias       bool `json:"norm_bias"`
	AttentionBias  bool `json:"attention_bias"`
	MLPBias        bool `json:"mlp_bias"`
	ClassifierBias bool `json:"classifier_bias"`
	DecoderBias    bool `json:"decoder_bias"`

	ClassifierActivation string `json:"classifier_activation"`
	ClassifierPooling    string `json:"classifier_pooling"`

	modernbertRopeKeys
	modernbertRefused
}

// modernbertRopeKeys are the keys of the rotary embeddings, by kind of block. The older form has a
// base for each kind.
type modernbertRopeKeys struct {
	GlobalTheta float64                    `json:"global_rope_theta"`
	LocalTheta  json.RawMessage            `json:"local_rope_theta"`
	RopeTheta   *float64                   `json:"rope_theta"` // of other architectures
	Scaling     map[string]json.RawMessage `json:"rope_scaling"`
	Parameters  map[string]json.RawMessage `json:"rope_parameters"`
}

// modernbertRefused are keys that would change the computation and that no published model sets to
// anything but what is computed here.
type modernbertRefused struct {
	HeadDim       *int64   `json:"head_dim"`
	SlidingWindow *int64   `json:"sliding_window"`
	KVHeads       *int64   `json:"num_key_value_heads"`
	SoftCap       *float64 `json:"attn_logit_softcapping"`
	IsDecoder     bool     `json:"is_decoder"`
	Cross         bool     `json:"add_cross_attention"`
}

// gates maps the names of transformers to the functions of a gated linear.
var gates = map[string]engine.Gate{
	"gelu": engine.GEGLU, "gelu_new": engine.GEGLUTanh, "gelu_fast": engine.GEGLUTanh,
	"gelu_pytorch_tanh": engine.GEGLUTanh, "silu": engine.SwiGLU, "swish": engine.SwiGLU,
}

// readModernbertConfig reads and checks config.json. An absent key has transformers' default if
// published models leave it out. Sizes are required.
func readModernbertConfig(dir fs.FS) (modernbertConfig, error) {
	c := modernbertConfig{Activation: "gelu", NormEps: 1e-5, GlobalEvery: 3, LocalAttention: 128,
		DecoderBias: true, ClassifierActivation: "gelu", ClassifierPooling: "cls",
		modernbertRopeKeys: modernbertRopeKeys{GlobalTheta: 160000}}
	if isNested(dir) {
		c.VocabSize, c.HiddenSize, c.IntermediateSize = 50368, 768, 1152
		c.Layers, c.Heads, c.Positions = 22, 12, 8192
	}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if err := refuseUnknownMeaning(dir, map[string]any{"num_experts": nil}); err != nil {
		return c, err
	}
	return c, c.checkRefused()
}

func (c *modernbertConfig) check() error {
	sizes := encoderSizes{
		hidden:    keyed{"hidden_size", c.HiddenSize},
		heads:     keyed{"num_attention_heads", c.Heads},
		layers:    keyed{"num_hidden_layers", c.Layers},
		inner:     keyed{"intermediate_size", c.IntermediateSize},
		positions: keyed{"max_position_embeddings", c.Positions},
		vocab:     keyed{"vocab_size", c.VocabSize},
	}
	if err := sizes.check(sized{"global_attn_every_n_layers", c.GlobalEvery, 1, 1 << 20}); err != nil {
		return err
	}
	if err := checkEpsilon("norm_eps", c.NormEps); err != nil {
		return err
	}
	if err := checkNamed("hidden_activation", c.Activation, gates); err != nil {
		return err
	}
	if err := checkNamed("classifier_activation", c.ClassifierActivation, activations); err != nil {
		return err
	}
	if c.ClassifierPooling != "cls" && c.ClassifierPooling != "mean" {
		return refuse(configFile, "classifier_pooling", "is %.60q; cls and mean are supported",
			c.ClassifierPooling)
	}
	return c.checkBlocks()
}

// checkBlocks checks the kinds of blocks, and makes the list where the file has only a number.
func (c *modernbertConfig) checkBlocks() error {
	if c.LayerTypes == nil {
		for i := range c.Layers {
			kind := localBlock
			if i%c.GlobalEvery == 0 {
				kind = globalBlock
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if err := checkKinds(c.LayerTypes, c.Layers); err != nil {
		return err
	}
	if slices.Contains(c.LayerTypes, localBlock) && (c.LocalAttention < 2 || c.LocalAttention > 1<<20) {
		return refuse(configFile, "local_attention", "is %d; a window is 2 to %d tokens wide",
			c.LocalAttention, 1<<20)
	}
	return nil
}

// checkRefused refuses what other architectures have and this one does not.
func (c *modernbertConfig) checkRefused() error {
	for _, same := range []struct {
		key         string
		value       *int64
		here        int64
		explanation string
	}{
		{"head_dim", c.HeadDim, c.headDim(), "hidden_size / num_attention_heads"},
		{"num_key_value_heads", c.KVHeads, c.Heads, "num_attention_heads"},
		{"sliding_window", c.SlidingWindow, c.LocalAttention / 2, "half of local_attention"},
	} {
		if same.value != nil && *same.value != same.here {
			return refuse(configFile, same.key, "is %d; ModernBERT has %d, %s",
				*same.value, same.here, same.explanation)
		}
	}
	if c.SoftCap != nil {
		return refuse(configFile, "attn_logit_softcapping", "is %g; capped scores are not supported",
			*c.SoftCap)
	}
	if c.IsDecoder || c.Cross {
		return refuse(configFile, "is_decoder", "decoders and cross-attention are not supported")
	}
	return nil
}

func (c *modernbertConfig) headDim() int64 { return c.HiddenSize / c.Heads }

// window returns how far a token of a local block sees in each direction, the last one included.
func (c *modernbertConfig) window() int64 { return c.LocalAttention / 2 }

// ropes reads the rotary embeddings of each kind of block. rope_scaling changes both kinds.
func (c *modernbertConfig) ropes() (global, local rope, err error) {
	global, local = newRope(c.GlobalTheta, c.Positions), newRope(10000, c.Positions)
	if raw := c.LocalTheta; raw != nil {
		if json.Unmarshal(raw, &local.theta) != nil || string(raw) == "null" {
			return global, local, refuse(configFile, "local_rope_theta",
				"is %.60s; a number is wanted. Of null, transformers made global_rope_theta before release 5, and makes nothing now",
				raw)
		}
	}
	err = readKindRopes(c.Parameters, kindRope{globalBlock, &global, c.Scaling},
		kindRope{localBlock, &local, c.Scaling})
	if err == nil && c.RopeTheta != nil && (*c.RopeTheta != global.theta || *c.RopeTheta != local.theta) {
		err = refuse(configFile, "rope_theta",
			"is %g and has no effect in ModernBERT, whose blocks have the bases %g and %g; remove it",
			*c.RopeTheta, global.theta, local.theta)
	}
	return global, local, err
}

// modernbert holds the packed weights. C = hidden_size, F = intermediate_size.
type modernbert struct {
	config        modernbertConfig
	word          *engine.Weight // [vocab, C]
	segments      *engine.Weight // [3, C], or nil
	gamma, beta   *engine.Weight // of the LayerNorm behind the embeddings
	blocks        []modernbertBlock
	final, finalB *engine.Weight // of the LayerNorm behind the last block
}

// modernbertBlock is one block. Biases and betas are nil where the configuration has none.
type modernbertBlock struct {
	local             bool
	rotary            rotary
	attGamma, attBeta *engine.Weight // nil in block 0, which takes the normalised embeddings
	qkv, qkvBias      *engine.Weight // [3·C, C]
	out, outBias      *engine.Weight // [C, C]
	mlpGamma, mlpBeta *engine.Weight
	gated, gatedBias  *engine.Weight // [2·F, C], as packer.gated packs them
	down, downBias    *engine.Weight // [C, F]
}

const (
	modernbertWords  = "embeddings.tok_embeddings.weight"
	modernbertLayers = "layers."
)

// loadModernbert packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadModernbert(dir fs.FS, p *packer) (encoder, error) {
	config, err := readModernbertConfig(dir)
	if err != nil {
		return nil, err
	}
	global, local, err := config.ropes()
	if err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.headDim(), "num_attention_heads"); err != nil {
		return nil, err
	}
	c := config.HiddenSize
	m := &modernbert{config: config}
	p.findPrefix(modernbertWords, []string{"", "model.", "0.auto_model."})
	p.refuseBlocksFrom(modernbertLayers, keyed{"num_hidden_layers", config.Layers})
	if _, ok := p.from.Tensor(p.prefix + "layers.0.attn_norm.weight"); ok {
		p.fail(refuse(p.file, p.prefix+"layers.0.attn_norm.weight",
			"ModernBERT's first block takes the normalised embeddings and has no such tensor"))
	}
	m.word = p.table(config.VocabSize, c, modernbertWords)
	m.segments = p.segments(c)
	m.gamma, m.beta = p.normOf(c, "embeddings.norm", config.NormBias)
	tables := map[string]rotary{globalBlock: p.rope(&global, config.headDim(), config.Positions)}
	tables[localBlock] = tables[globalBlock]
	if local != global {
		tables[localBlock] = p.rope(&local, config.headDim(), config.Positions)
	}
	for i, kind := range config.LayerTypes {
		b := m.loadBlock(p, i)
		b.local, b.rotary = kind == localBlock, tables[kind]
		m.blocks = append(m.blocks, b)
		if p.err != nil {
			return nil, p.err
		}
	}
	m.final, m.finalB = p.normOf(c, "final_norm", config.NormBias)
	return m, p.err
}

func (m *modernbert) loadBlock(p *packer, i int) (b modernbertBlock) {
	c, f := m.config.HiddenSize, m.config.IntermediateSize
	at := fmt.Sprintf("%s%d.", modernbertLayers, i)
	if i > 0 {
		b.attGamma, b.attBeta = p.normOf(c, at+"attn_norm", m.config.NormBias)
	}
	b.qkv = p.linear(3*c, c, at+"attn.Wqkv.weight")
	b.out = p.linearAfterAttention(c, c, at+"attn.Wo.weight")
	if m.config.AttentionBias {
		b.qkvBias, b.outBias = p.vector(3*c, at+"attn.Wqkv.bias"), p.vector(c, at+"attn.Wo.bias")
	}
	b.mlpGamma, b.mlpBeta = p.normOf(c, at+"mlp_norm", m.config.NormBias)
	wi := at + "mlp.Wi.weight" // the half that passes the activation comes first
	b.gated = p.gated(f, c, gateHalf{wi, 0}, gateHalf{wi, f})
	b.down = p.linear(c, f, at+"mlp.Wo.weight")
	if m.config.MLPBias {
		bias := at + "mlp.Wi.bias"
		b.gatedBias = p.gatedBias(f, gateHalf{bias, 0}, gateHalf{bias, f})
		b.downBias = p.vector(c, at+"mlp.Wo.bias")
	}
	return b
}

func (m *modernbert) forward(r *engine.Recorder, p pass) engine.Value {
	eps := float32(m.config.NormEps)
	x := r.Stream(r.EmbedLayerNorm(engine.Embedding{
		Word: m.word, Type: m.segments, Gamma: m.gamma, Beta: m.beta, Eps: eps,
	}))
	p.see(0, x)
	for i, b := range m.blocks {
		x = m.block(r, p, x, b, i == len(m.blocks)-1)
		p.see(i+1, x)
	}
	return r.LayerNorm(x, m.final, m.finalB, eps)
}

// block records one block: x plus attention of its norm, plus the MLP of the norm of that. x and
// the result are streams.
func (m *modernbert) block(
	r *engine.Recorder, p pass, x engine.Value, b modernbertBlock, last bool,
) engine.Value {
	c, eps := m.config.HiddenSize, float32(m.config.NormEps)
	attention := engine.Attention{Heads: int32(m.config.Heads), KVHeads: int32(m.config.Heads),
		HeadDim: int32(m.config.headDim())}
	if b.local {
		attention.Mask, attention.Window = engine.WindowMask, int32(m.config.window())
	}
	h := x
	if b.attGamma != nil {
		h = r.LayerNorm(x, b.attGamma, b.attBeta, eps)
	}
	qkv := p.linear(r, h, b.qkv, b.qkvBias, engine.NoAct, engine.NoValue)
	q, k, v := r.Columns(qkv, 0, c), r.Columns(qkv, c, c), r.Columns(qkv, 2*c, c)
	b.rotary.rotate(r, q, k, attention)
	if p.attendKept {
		k, v, attention.FirstKeys = r.KeepRows(k), r.KeepRows(v), b.local // windows need places
	}
	if last && p.keep != engine.PoolMean {
		q, x = r.GatherRows(q, p.keep), r.GatherRows(x, p.keep)
		attention.Which = p.keep
	}
	a := r.Attention(q, k, v, attention)
	x = r.Stream(p.linear(r, a, b.out, b.outBias, engine.NoAct, x))
	h = p.gated(r, r.LayerNorm(x, b.mlpGamma, b.mlpBeta, eps), b.gated, b.gatedBias,
		gates[m.config.Activation], engine.NoValue)
	return r.Stream(p.linear(r, h, b.down, b.downBias, engine.NoAct, x))
}

func (m *modernbert) linears() []linear {
	c, f := m.config.HiddenSize, m.config.IntermediateSize
	var all []linear
	for i, b := range m.blocks {
		at := fmt.Sprintf("%s%d.", modernbertLayers, i)
		all = append(all,
			linear{weight: b.qkv, names: []string{at + "attn.Wqkv"}, n: 3 * c, k: c},
			linear{weight: b.out, names: []string{at + "attn.Wo"}, n: c, k: c},
			linear{weight: b.gated, names: []string{at + "mlp.Wi"}, n: 2 * f, k: c, gated: &halves{0, f}},
			linear{weight: b.down, names: []string{at + "mlp.Wo"}, n: c, k: f})
	}
	return all
}

func (m *modernbert) shape() encoderShape {
	c, f := float64(m.config.HiddenSize), float64(m.config.IntermediateSize)
	s := encoderShape{
		columns:   m.config.HiddenSize,
		words:     m.config.HiddenSize,
		blocks:    int(m.config.Layers),
		positions: m.config.Positions,
		vocab:     m.config.VocabSize,
		cost:      Cost{Window: int(m.config.window())},
	}
	if m.segments != nil {
		s.types = segmentCount
	}
	for _, b := range m.blocks {
		s.cost.PerToken += 2 * c * (4*c + 3*f)
		if b.local {
			s.cost.PerNear += 4 * c
		} else {
			s.cost.PerPair += 4 * c
		}
	}
	return s
}

// heads returns the names of the layers behind the encoder. All go through one layer with a
// LayerNorm: a text's pooled state, a token's state, and the words' logits.
func (m *modernbert) heads() headNames {
	act, pooling := activations[m.config.ClassifierActivation], engine.PoolCLS
	if m.config.ClassifierPooling == "mean" {
		pooling = engine.PoolMean
	}
	before := transformNames{
		dense: "head.dense", noBias: !m.config.ClassifierBias, act: act,
		norm: "head.norm", noBeta: !m.config.NormBias, eps: m.config.NormEps,
	}
	h := headNames{pooler: before, pooling: pooling, logits: "classifier", tagger: before, tag: "classifier",
		masked: maskedNames{transform: before, words: modernbertWords, decoder: "decoder"}}
	if m.config.DecoderBias {
		h.masked.biases = []string{"decoder.bias"}
	}
	return h
}
