package arch

import (
	"cmp"
	"fmt"
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// T5 (Raffel 2020, arXiv:1910.10683) normalises before each part of a block, by the root mean
// square alone, and has no biases and no positions in the input: a table says how much each head
// prefers a key at each distance, and scores are not scaled. In T5 and mT5 all blocks share the
// table of block 0; in umT5 each has its own. Only the encoder is computed here. It is the encoder
// of GLiClass multilang ultra.

// t5Longest bounds a text, because no table of positions does.
const t5Longest = 8192

// t5Config holds the keys of config.json that the computation depends on.
type t5Config struct {
	HiddenSize       int64   `json:"d_model"`
	HeadDim          int64   `json:"d_kv"` // heads · d_kv need not be d_model
	IntermediateSize int64   `json:"d_ff"`
	Heads            int64   `json:"num_heads"`
	Layers           int64   `json:"num_layers"`
	VocabSize        int64   `json:"vocab_size"`
	Buckets          int64   `json:"relative_attention_num_buckets"`
	Reach            int64   `json:"relative_attention_max_distance"`
	NormEps          float64 `json:"layer_norm_epsilon"`
	FeedForward      string  `json:"feed_forward_proj"`

	t5Repeated
	Decoder bool `json:"is_decoder"`
}

// t5Repeated are keys that say again what others say, under the names of other architectures or as
// what follows.
type t5Repeated struct {
	HiddenSize *int64  `json:"hidden_size"`
	Heads      *int64  `json:"num_attention_heads"`
	Layers     *int64  `json:"num_hidden_layers"`
	HeadDim    *int64  `json:"head_dim"`
	Activation *string `json:"dense_act_fn"`
	Gated      *bool   `json:"is_gated_act"`
}

// t5Kind is what the model_types t5, mt5 and umt5 differ in.
type t5Kind struct {
	defaults t5Config // of transformers, for an encoder inside another package's model
	ownBias  bool     // each block has a table of distances
}

var (
	t5Plain = &t5Kind{defaults: t5Config{HiddenSize: 512, HeadDim: 64, IntermediateSize: 2048, Heads: 8,
		Layers: 6, VocabSize: 32128, FeedForward: "relu"}}
	mt5 = &t5Kind{defaults: t5Config{HiddenSize: 512, HeadDim: 64, IntermediateSize: 1024, Heads: 6,
		Layers: 8, VocabSize: 250112, FeedForward: "gated-gelu"}}
	umt5 = &t5Kind{defaults: mt5.defaults, ownBias: true}
)

// t5FeedForward is a form of the MLP. name is that of its function in transformers.
type t5FeedForward struct {
	name  string
	gated bool
	gate  engine.Gate
	act   engine.Act
}

// t5FeedForwards maps feed_forward_proj to the form. The GELU behind a gate is the tanh one,
// whatever the name says.
var t5FeedForwards = map[string]t5FeedForward{
	"relu":       {name: "relu", act: engine.ReLU},
	"gelu":       {name: "gelu", act: engine.GELU},
	"gated-gelu": {name: "gelu_new", gated: true, gate: engine.GEGLUTanh},
	"gated-silu": {name: "silu", gated: true, gate: engine.SwiGLU},
}

// read reads and checks config.json. Sizes are required but inside another package's model, which
// leaves out what transformers knows.
func (t *t5Kind) read(dir fs.FS) (t5Config, error) {
	c := t5Config{FeedForward: t.defaults.FeedForward}
	if isNested(dir) {
		c = t.defaults
	}
	c.Buckets, c.Reach, c.NormEps = 32, 128, 1e-6
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if err := checkSizes(
		sized{"d_model", c.HiddenSize, 1, 8192},
		sized{"d_kv", c.HeadDim, 1, 1024},
		sized{"d_ff", c.IntermediateSize, 1, 65536},
		sized{"num_heads", c.Heads, 1, 256},
		sized{"num_layers", c.Layers, 1, 128},
		sized{"vocab_size", c.VocabSize, 1, 1 << 22},
		sized{"relative_attention_num_buckets", c.Buckets, 4, 4096},
		sized{"relative_attention_max_distance", c.Reach, 2, t5Longest},
	); err != nil {
		return c, err
	}
	if c.Buckets%4 != 0 || c.Reach <= c.Buckets/4 {
		return c, refuse(configFile, "relative_attention_num_buckets",
			"is %d, with distances up to %d; a multiple of 4 is possible, of which a quarter is below the distance",
			c.Buckets, c.Reach)
	}
	if err := checkEpsilon("layer_norm_epsilon", c.NormEps); err != nil {
		return c, err
	}
	if err := checkNamed("feed_forward_proj", c.FeedForward, t5FeedForwards); err != nil {
		return c, err
	}
	foreign := map[string]any{"num_experts": nil, "attn_logit_softcapping": nil}
	if err := refuseUnknownMeaning(dir, foreign); err != nil {
		return c, err
	}
	return c, c.checkRepeated()
}

// checkRepeated refuses a file that says two things of one, and a decoder.
func (c *t5Config) checkRepeated() error {
	for _, same := range []struct {
		key   string
		value *int64
		of    string
		is    int64
	}{
		{"hidden_size", c.t5Repeated.HiddenSize, "d_model", c.HiddenSize},
		{"num_attention_heads", c.t5Repeated.Heads, "num_heads", c.Heads},
		{"num_hidden_layers", c.t5Repeated.Layers, "num_layers", c.Layers},
		{"head_dim", c.t5Repeated.HeadDim, "d_kv", c.HeadDim},
	} {
		if same.value != nil && *same.value != same.is {
			return refuse(configFile, same.key, "is %d, and %s is %d; leave one of them out", *same.value,
				same.of, same.is)
		}
	}
	form := t5FeedForwards[c.FeedForward]
	switch {
	case c.Activation != nil && *c.Activation != form.name:
		return refuse(configFile, "dense_act_fn", "is %.60q; that of feed_forward_proj %s is %s",
			*c.Activation, c.FeedForward, form.name)
	case c.Gated != nil && *c.Gated != form.gated:
		return refuse(configFile, "is_gated_act", "is %v, which feed_forward_proj %s is not", *c.Gated,
			c.FeedForward)
	case c.Decoder:
		return refuse(configFile, "is_decoder", "is true; decoders are not supported, false is possible")
	}
	return nil
}

// wide is the columns of all heads, H·D.
func (c *t5Config) wide() int64 { return c.Heads * c.HeadDim }

// t5 holds the packed weights. C = d_model, F = d_ff.
type t5 struct {
	config t5Config
	mlp    t5FeedForward
	word   *engine.Weight // [vocab, C]
	blocks []t5Block
	norm   *engine.Weight // of the RMSNorm behind the last block
}

// t5Block is one block.
type t5Block struct {
	attentionNorm *engine.Weight
	qkv           *engine.Weight // [3·H·D, C]
	out           *engine.Weight // [C, H·D]
	bias          *engine.Weight // [H, 2·reach + 1] by distance
	mlpNorm       *engine.Weight
	up            *engine.Weight // [F, C], or [2·F, C] as packer.gated packs them
	down          *engine.Weight // [C, F]
}

// The names of the published tensors. A file has the table of words under one of two names, or
// under both.
const (
	t5Words    = "shared.weight"
	t5Embedded = "encoder.embed_tokens.weight"
	t5Layers   = "encoder.block."
	t5Final    = "encoder.final_layer_norm.weight"
)

// load packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func (t *t5Kind) load(dir fs.FS, p *packer) (encoder, error) {
	config, err := t.read(dir)
	if err != nil {
		return nil, err
	}
	err = cmp.Or(p.checkHeadDim(config.HeadDim, "d_kv"), p.checkDistances(config.HeadDim, "d_kv"))
	if err != nil {
		return nil, err
	}
	if err := p.avoidF16("the sums of T5's blocks go beyond its largest value, 65504"); err != nil {
		return nil, err
	}
	p.findPrefix(t5Final, []string{"", "model.", "0.auto_model."})
	p.refuseBlocksFrom(t5Layers, keyed{"num_layers", config.Layers})
	m := &t5{config: config, mlp: t5FeedForwards[config.FeedForward],
		word: p.table(config.VocabSize, config.HiddenSize, p.first(t5Words, t5Embedded))}
	for i := range int(config.Layers) {
		m.blocks = append(m.blocks, m.loadBlock(p, i, t.ownBias))
		if p.err != nil {
			return nil, p.err
		}
	}
	m.norm = p.vector(config.HiddenSize, t5Final)
	return m, p.err
}

// loadBlock packs block i. ownBias: it has a table of distances; else block 0 has that of all.
func (m *t5) loadBlock(p *packer, i int, ownBias bool) (b t5Block) {
	c, f, wide := m.config.HiddenSize, m.config.IntermediateSize, m.config.wide()
	at := fmt.Sprintf("%s%d.layer.", t5Layers, i)
	attention, mlp := at+"0.SelfAttention.", at+"1.DenseReluDense."
	b.attentionNorm = p.vector(c, at+"0.layer_norm.weight")
	b.qkv = p.linear(wide, c, attention+"q.weight", attention+"k.weight", attention+"v.weight")
	b.out = p.linearAfterAttention(c, wide, attention+"o.weight")
	if i == 0 || ownBias {
		b.bias = m.loadBias(p, attention+"relative_attention_bias.weight")
	} else {
		b.bias = m.blocks[0].bias
	}
	b.mlpNorm = p.vector(c, at+"1.layer_norm.weight")
	if m.mlp.gated {
		b.up = p.gated(f, c, gateHalf{mlp + "wi_0.weight", 0}, gateHalf{mlp + "wi_1.weight", 0})
	} else {
		b.up = p.linear(f, c, mlp+"wi.weight")
	}
	b.down = p.linear(c, f, mlp+"wo.weight")
	return b
}

// loadBias packs a table of buckets [buckets, H] by distance.
func (m *t5) loadBias(p *packer, name string) *engine.Weight {
	table := p.hostTensor(name, m.config.Buckets, m.config.Heads)
	if p.err != nil {
		return nil
	}
	by := biasByDistance(table, int(m.config.Heads), int(m.config.Buckets), int(m.config.Reach))
	return p.data(2*m.config.Reach+1, engine.F32, littleEndian(by))
}

// forward records the encoder. State i is the sum of the branches up to block i.
func (m *t5) forward(r *engine.Recorder, p pass) engine.Value {
	x := r.Stream(r.EmbedLayerNorm(engine.Embedding{Word: m.word, Norm: engine.NoNorm}))
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
func (m *t5) add(
	r *engine.Recorder, branch engine.Value, gamma *engine.Weight, sum engine.Value,
) (y, newSum engine.Value) {
	y, newSum = r.Norm(branch, engine.NormSpec{Norm: engine.RMSNorm, Gamma: gamma, Residual: sum,
		Eps: float32(m.config.NormEps)})
	return y, r.Stream(newSum)
}

// block records block i. branch is what the block before adds to sum; the result is what this block
// adds to the new sum.
func (m *t5) block(
	r *engine.Recorder, p pass, branch, sum engine.Value, i int,
) (_, newSum engine.Value) {
	b, wide := &m.blocks[i], m.config.wide()
	a := engine.Attention{Heads: int32(m.config.Heads), KVHeads: int32(m.config.Heads),
		HeadDim: int32(m.config.HeadDim), Scale: 1, Bias: b.bias}
	h, sum := m.add(r, branch, b.attentionNorm, sum)
	if i > 0 {
		p.see(i, sum)
	}
	qkv := p.linear(r, h, b.qkv, nil, engine.NoAct, engine.NoValue)
	q, k, v := r.Columns(qkv, 0, wide), r.Columns(qkv, wide, wide), r.Columns(qkv, 2*wide, wide)
	if p.attendKept {
		k, v, a.FirstKeys = r.KeepRows(k), r.KeepRows(v), true // distances need places
	}
	if i == len(m.blocks)-1 && p.keep != engine.PoolMean {
		q, sum = r.GatherRows(q, p.keep), r.GatherRows(sum, p.keep)
		a.Which = p.keep
	}
	o := p.linear(r, r.Attention(q, k, v, a), b.out, nil, engine.NoAct, engine.NoValue)
	h, sum = m.add(r, o, b.mlpNorm, sum)
	if m.mlp.gated {
		h = p.gated(r, h, b.up, nil, m.mlp.gate, engine.NoValue)
	} else {
		h = p.linear(r, h, b.up, nil, m.mlp.act, engine.NoValue)
	}
	return p.linear(r, h, b.down, nil, engine.NoAct, engine.NoValue), sum
}

func (m *t5) linears() []linear {
	c, f, wide := m.config.HiddenSize, m.config.IntermediateSize, m.config.wide()
	var all []linear
	for i, b := range m.blocks {
		at := fmt.Sprintf("%s%d.layer.", t5Layers, i)
		attention, mlp := at+"0.SelfAttention.", at+"1.DenseReluDense."
		all = append(all,
			linear{weight: b.qkv, n: wide, k: c,
				names: []string{attention + "q", attention + "k", attention + "v"}},
			linear{weight: b.out, n: c, k: wide, names: []string{attention + "o"}})
		if m.mlp.gated {
			all = append(all, linear{weight: b.up, n: f, k: c, gated: &halves{0, f},
				names: []string{mlp + "wi_0", mlp + "wi_1"}})
		} else {
			all = append(all, linear{weight: b.up, n: f, k: c, names: []string{mlp + "wi"}})
		}
		all = append(all, linear{weight: b.down, n: c, k: f, names: []string{mlp + "wo"}})
	}
	return all
}

func (m *t5) shape() encoderShape {
	c, f, wide := float64(m.config.HiddenSize), float64(m.config.IntermediateSize), float64(m.config.wide())
	if m.mlp.gated {
		f *= 1.5 // three matrices in place of two
	}
	blocks := float64(m.config.Layers)
	return encoderShape{
		columns:   m.config.HiddenSize,
		words:     m.config.HiddenSize,
		blocks:    int(m.config.Layers),
		positions: t5Longest,
		vocab:     m.config.VocabSize,
		biased:    true,
		cost:      Cost{PerToken: 2 * c * blocks * (4*wide + 2*f), PerPair: 4 * wide * blocks},
	}
}

// heads: published models have none behind this encoder but those of other packages.
func (m *t5) heads() headNames { return headNames{} }
