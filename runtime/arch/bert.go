package arch

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// BERT (Devlin 2018, arXiv:1810.04805) and its family: learned positions, post-norm blocks of full
// attention and a two-layer MLP. It is the encoder of MiniLM, E5, BGE, GTE, Arctic and of SPLADE
// and ColBERT models; RoBERTa and XLM-R are the encoders of the multilingual ones. bertnames.go
// holds the names of each member's tensors and keys.

// bertConfig holds the keys of config.json that the computation depends on, by BERT's names.
type bertConfig struct {
	HiddenSize int64 `json:"hidden_size"`
	// of families with factorised embeddings; hidden_size in others
	EmbeddingSize         int64   `json:"embedding_size"`
	Heads                 int64   `json:"num_attention_heads"`
	Layers                int64   `json:"num_hidden_layers"`
	IntermediateSize      int64   `json:"intermediate_size"`
	HiddenAct             string  `json:"hidden_act"`
	LayerNormEps          float64 `json:"layer_norm_eps"`
	MaxPositionEmbeddings int64   `json:"max_position_embeddings"`
	TypeVocabSize         int64   `json:"type_vocab_size"`
	VocabSize             int64   `json:"vocab_size"`
	PadTokenID            int64   `json:"pad_token_id"`
	PositionEmbeddingType string  `json:"position_embedding_type"`
	IsDecoder             bool    `json:"is_decoder"`
	AddCrossAttention     bool    `json:"add_cross_attention"`
}

// bertNeutral lists keys of other configurations with the value that changes nothing. A file with
// another value was made for code that computes something else.
var bertNeutral = map[string]any{
	"attn_logit_softcapping": nil, "layer_types": nil, "logn_attention_scale": false, "num_experts": nil,
	"num_local_experts": nil, "parallel_block": false, "prenorm": false, "rope_scaling": nil,
	"sliding_window": nil,
}

// readBertConfig reads and checks config.json. An absent key has the family's default in
// transformers if published models leave it out. Sizes are required.
func readBertConfig(dir fs.FS, family *bertFamily) (bertConfig, error) {
	c := family.defaults
	if family.convert != nil {
		var err error
		if c, err = family.convert(dir); err != nil {
			return c, err
		}
	} else if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if err := refuseUnknownMeaning(dir, bertNeutral); err != nil {
		return c, err
	}
	if family.project == "" {
		c.EmbeddingSize = c.HiddenSize
	}
	return c, c.check(family)
}

func (c *bertConfig) check(family *bertFamily) error {
	sizes := encoderSizes{
		hidden:    keyed{family.key("hidden_size"), c.HiddenSize},
		heads:     keyed{family.key("num_attention_heads"), c.Heads},
		layers:    keyed{family.key("num_hidden_layers"), c.Layers},
		inner:     keyed{family.key("intermediate_size"), c.IntermediateSize},
		positions: keyed{family.key("max_position_embeddings"), c.MaxPositionEmbeddings},
		vocab:     keyed{family.key("vocab_size"), c.VocabSize},
	}
	if err := sizes.check(sized{family.key("embedding_size"), c.EmbeddingSize, 1, 8192},
		sized{family.key("type_vocab_size"), c.TypeVocabSize, 0, 1024}); err != nil {
		return err
	}
	if err := checkEpsilon("layer_norm_eps", c.LayerNormEps); err != nil {
		return err
	}
	if _, ok := activations[c.HiddenAct]; !ok {
		return refuse(configFile, family.key("hidden_act"),
			"is %q; supported are gelu, gelu_new, gelu_pytorch_tanh, relu, silu and tanh", c.HiddenAct)
	}
	if family.positionsAfterPad && (c.PadTokenID < 0 || c.PadTokenID >= c.MaxPositionEmbeddings-1) {
		return refuse(configFile, "pad_token_id",
			"is %d, which leaves no position of %d: positions begin behind it",
			c.PadTokenID, c.MaxPositionEmbeddings)
	}
	if want := cmp.Or(family.positions, "absolute"); c.PositionEmbeddingType != want {
		return refuse(configFile, "position_embedding_type", "is %q; only %s positions are supported",
			c.PositionEmbeddingType, want)
	}
	for _, key := range []struct {
		name string
		on   bool
	}{{"is_decoder", c.IsDecoder}, {"add_cross_attention", c.AddCrossAttention}} {
		if key.on {
			return refuse(configFile, key.name,
				"is true; decoders and cross-attention are not supported, false is possible")
		}
	}
	return nil
}

func (c *bertConfig) headDim() int64 { return c.HiddenSize / c.Heads }

// activations maps the names of transformers. gelu_fast and gelu_new are the tanh form with its
// constants written differently.
var activations = map[string]engine.Act{
	"gelu": engine.GELU, "gelu_new": engine.GELUTanh, "gelu_fast": engine.GELUTanh,
	"gelu_pytorch_tanh": engine.GELUTanh, "relu": engine.ReLU, "silu": engine.SiLU, "swish": engine.SiLU,
	"tanh": engine.Tanh,
}

// bert holds the packed weights. C = hidden_size, E = embedding_size, F = intermediate_size.
type bert struct {
	family                *bertFamily
	config                bertConfig
	firstPosition         int32
	word, position, types *engine.Weight // [vocab, E], [positions, E] or nil, [types, E] or nil
	gamma, beta           *engine.Weight
	project               layer  // [C, E]; no weight where projects is false
	rotary                rotary // without tables where positions are in the embeddings
	// what attention adds by distance, [heads, ·]; nil in most families
	bias *engine.Weight
	// of disentangled attention: the number of its terms, and rows of posKey and posQuery by
	// distance; 0 and nil in other families
	terms   int
	buckets *engine.Weight
	blocks  []bertBlock
}

type bertBlock struct {
	qkv, qkvBias          *engine.Weight // [3·C, C]
	out, outBias          *engine.Weight // [C, C]
	attGamma, attBeta     *engine.Weight
	up, upBias            *engine.Weight // [F, C]
	down, downBias        *engine.Weight // [C, F]
	blockGamma, blockBeta *engine.Weight
	posKey, posQuery      *engine.Weight // data [·, C] of disentangled attention, or nil
}

// wordTable is the name of the table of words, which a decoder may share.
const wordTable = "embeddings.word_embeddings.weight"

const typeTable = "embeddings.token_type_embeddings.weight"

// load packs an encoder of the family. It leaves p.prefix at the prefix of the encoder's tensors.
func (family *bertFamily) load(dir fs.FS, p *packer) (encoder, error) {
	config, err := readBertConfig(dir, family)
	if err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.headDim(), family.key("num_attention_heads")); err != nil {
		return nil, err
	}
	b := &bert{family: family, config: config}
	if family.positionsAfterPad {
		b.firstPosition = int32(config.PadTokenID) + 1
	}
	p.findPrefix(wordTable, family.prefixes)
	b.loadEmbeddings(p)
	for i := range config.Layers {
		b.blocks = append(b.blocks, loadBlock(p, family.names, fmt.Sprintf(family.block, i),
			config.HiddenSize, config.IntermediateSize))
		if p.err != nil {
			break
		}
	}
	layers, _, _ := strings.Cut(family.block, "%")
	p.refuseBlocksFrom(layers, keyed{family.key("num_hidden_layers"), config.Layers})
	return b, p.err
}

// types packs the table of token types, [n, k]; nil for n = 0. No model of BERT's family leaves out
// a table that its checkpoint has.
func (p *packer) types(n, k int64) *engine.Weight {
	if n > 0 {
		return p.table(n, k, typeTable)
	}
	if _, has := p.from.Tensor(p.prefix + typeTable); has {
		p.fail(refuse(configFile, "type_vocab_size", "is 0, and %s has %s", p.file, p.prefix+typeTable))
	}
	return nil
}

// loadEmbeddings packs the tables, their LayerNorm, and the projection if the model has one.
func (b *bert) loadEmbeddings(p *packer) {
	config, e := &b.config, b.config.EmbeddingSize
	b.word = p.table(config.VocabSize, e, wordTable)
	if b.family.positions == "" {
		b.position = p.table(config.MaxPositionEmbeddings, e, "embeddings.position_embeddings.weight")
	}
	if b.types = p.types(config.TypeVocabSize, e); b.types == nil && p.nested.segments != "" {
		b.types, config.TypeVocabSize = p.segments(e), segmentCount
	}
	b.gamma, b.beta = p.norm(e, cmp.Or(b.family.embedNorm, "embeddings.LayerNorm"))
	if b.projects() {
		b.project = p.layer(config.HiddenSize, e, b.family.project, engine.NoAct)
	}
}

// projects reports whether a matrix brings the embeddings to the width of the blocks.
func (b *bert) projects() bool {
	return b.family.project != "" && (b.family.projectAlways || b.config.EmbeddingSize != b.config.HiddenSize)
}

// loadBlock packs a block of c columns with f columns in its MLP. The tensors' names begin with at.
func loadBlock(p *packer, n bertTensors, at string, c, f int64) (l bertBlock) {
	if n.qkv != "" {
		l.qkv, l.qkvBias = p.linear(3*c, c, at+n.qkv+".weight"), p.vector(3*c, at+n.qkv+".bias")
	} else {
		q, k, v := at+n.query, at+n.key, at+n.value
		l.qkv = p.linear(c, c, q+".weight", k+".weight", v+".weight")
		l.qkvBias = p.vector(c, q+".bias", k+".bias", v+".bias")
	}
	l.out = p.linearAfterAttention(c, c, at+n.out+".weight")
	l.outBias = p.vector(c, at+n.out+".bias")
	l.attGamma, l.attBeta = p.norm(c, at+n.attentionNorm)
	l.up = p.linear(f, c, at+n.up+".weight")
	l.upBias = p.vector(f, at+n.up+".bias")
	l.down = p.linear(c, f, at+n.down+".weight")
	l.downBias = p.vector(c, at+n.down+".bias")
	l.blockGamma, l.blockBeta = p.norm(c, at+n.blockNorm)
	return l
}

func (b *bert) forward(r *engine.Recorder, p pass) engine.Value {
	x := b.embed(r, p)
	p.see(0, x)
	for i, l := range b.blocks {
		x = b.block(r, p, x, l, i == len(b.blocks)-1)
		p.see(i+1, x)
	}
	return x
}

// embed records the operations before the blocks.
func (b *bert) embed(r *engine.Recorder, p pass) engine.Value {
	x := r.EmbedLayerNorm(engine.Embedding{Word: b.word, Position: b.position, Type: b.types,
		Gamma: b.gamma, Beta: b.beta, Eps: float32(b.config.LayerNormEps), PositionOffset: b.firstPosition})
	if b.project.weight != nil {
		x = p.layer(r, x, b.project)
	}
	return x
}

// block records one block.
func (b *bert) block(r *engine.Recorder, p pass, x engine.Value, l bertBlock, last bool) engine.Value {
	c, eps := b.config.HiddenSize, float32(b.config.LayerNormEps)
	attention := engine.Attention{Heads: int32(b.config.Heads), KVHeads: int32(b.config.Heads),
		HeadDim: int32(b.config.headDim()),
		Scale:   float32(1 / math.Sqrt(float64(b.config.headDim()*int64(1+b.terms)))),
		PosKey:  l.posKey, PosQuery: l.posQuery, Buckets: b.buckets,
		Bias: b.bias}

	qkv := p.linear(r, x, l.qkv, l.qkvBias, engine.NoAct, engine.NoValue)
	q, k, v := r.Columns(qkv, 0, c), r.Columns(qkv, c, c), r.Columns(qkv, 2*c, c)
	if b.rotary.cos != nil {
		b.rotary.rotate(r, q, k, attention)
	}
	if p.attendKept {
		k, v = r.KeepRows(k), r.KeepRows(v)
	}
	if last && p.keep != engine.PoolMean {
		q, x = r.GatherRows(q, p.keep), r.GatherRows(x, p.keep)
		attention.Which = p.keep
	}
	a := r.Attention(q, k, v, attention)
	x = r.LayerNorm(p.linear(r, a, l.out, l.outBias, engine.NoAct, x), l.attGamma, l.attBeta, eps)
	h := p.linear(r, x, l.up, l.upBias, activations[b.config.HiddenAct], engine.NoValue)
	return r.LayerNorm(p.linear(r, h, l.down, l.downBias, engine.NoAct, x), l.blockGamma, l.blockBeta, eps)
}

func (b *bert) linears() []linear {
	all := b.projection()
	for i, l := range b.blocks {
		all = append(all, l.linears(b.family.names, fmt.Sprintf(b.family.block, i), b.config.HiddenSize,
			b.config.IntermediateSize)...)
	}
	return all
}

// projection returns the linear behind the embeddings, or nil.
func (b *bert) projection() []linear {
	if b.project.weight == nil {
		return nil
	}
	return []linear{
		{weight: b.project.weight, names: []string{b.family.project}, n: b.config.HiddenSize,
			k: b.config.EmbeddingSize},
	}
}

// linears returns the block's linears, whose names begin with at.
func (l *bertBlock) linears(n bertTensors, at string, c, f int64) []linear {
	qkv := linear{weight: l.qkv, names: []string{at + n.query, at + n.key, at + n.value}, n: c, k: c}
	if n.qkv != "" {
		qkv.names, qkv.n = []string{at + n.qkv}, 3*c
	}
	return []linear{
		qkv,
		{weight: l.out, names: []string{at + n.out}, n: c, k: c},
		{weight: l.up, names: []string{at + n.up}, n: f, k: c},
		{weight: l.down, names: []string{at + n.down}, n: c, k: f},
	}
}

func (b *bert) shape() encoderShape {
	return encoderShape{
		columns:   b.config.HiddenSize,
		words:     b.config.EmbeddingSize,
		blocks:    int(b.config.Layers),
		positions: b.config.MaxPositionEmbeddings - int64(b.firstPosition),
		vocab:     b.config.VocabSize,
		types:     b.config.TypeVocabSize,
		biased:    b.bias != nil,
		cost:      Cost{PerToken: b.config.perToken(), PerPair: b.config.perPair()},
	}
}

// perToken returns the floating-point operations of the blocks' linears for one token. Each weight
// takes a multiplication and an addition.
func (c *bertConfig) perToken() float64 {
	return 2 * float64(c.Layers) * float64(c.HiddenSize) * float64(4*c.HiddenSize+2*c.IntermediateSize)
}

// perPair returns the floating-point operations of attention for a pair of tokens. A pair adds one
// score and one share of a value.
func (c *bertConfig) perPair() float64 { return 4 * float64(c.Layers) * float64(c.HiddenSize) }

// heads returns the names of the layers behind the encoder. The head over the vocabulary uses the
// encoder's epsilon and, unless the family sets one, its activation.
func (b *bert) heads() headNames {
	h := b.family.heads
	h.masked.words = wordTable
	h.masked.transform.eps = b.config.LayerNormEps
	if h.masked.transform.act == engine.NoAct {
		h.masked.transform.act = activations[b.config.HiddenAct]
	}
	return h
}
