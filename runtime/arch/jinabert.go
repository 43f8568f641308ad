package arch

import (
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// Jina's BERT (Günther 2023, arXiv:2310.19923) is BERT without a table of positions. Attention
// subtracts a multiple of the distance between two tokens from their score, in both directions, by
// another slope in each head (ALiBi, Press 2021, arXiv:2108.12409). The MLP is gated. It is the
// encoder of jina-embeddings-v2 and of jina-reranker-v1. The one for code also normalises queries
// and keys, all heads together, and has another norm behind attention.
//
// transformers does not have it. Its names and what it computes are those of the modelling files
// that knownClasses lists.

// jinaBertNames holds what the two modelling files do differently.
type jinaBertNames struct {
	gated     string // holds both halves
	upFirst   bool   // the half that is not activated comes first
	down      string
	blockNorm string
	plain     bertTensors // up, down and blockNorm of an MLP without a gate
	plainBias bool        // the first of its matrices has one
	norms     bool        // of queries and keys, and of the sum behind attention
}

var jinaBertPlain = &jinaBertNames{
	gated: "mlp.gated_layers", down: "mlp.wo", blockNorm: "mlp.layernorm",
	plain: encoderTensors, plainBias: true,
}

var jinaBertCode = &jinaBertNames{
	gated: "mlp.up_gated_layer", upFirst: true, down: "mlp.down_layer", blockNorm: "layer_norm_2",
	plain: bertTensors{up: "mlp.up_layer", down: "mlp.down_layer", blockNorm: "layer_norm_2"},
	norms: true,
}

// jinaBertFamily is what Jina's BERT shares with BERT: the embeddings, the names of attention's
// matrices and the heads.
var jinaBertFamily = &bertFamily{
	prefixes:  bertNames.prefixes,
	block:     encoderLayer,
	names:     encoderTensors,
	heads:     bertNames.heads,
	positions: "alibi",
	defaults:  bertConfig{HiddenAct: "gelu", LayerNormEps: 1e-12, TypeVocabSize: 2},
}

// The values of feed_forward_type that are computed here.
const (
	gatedMLP = "geglu"
	plainMLP = "original"
)

// jinaBertModel holds the packed weights. C = hidden_size, F = intermediate_size.
type jinaBertModel struct {
	names       *jinaBertNames
	config      bertConfig
	isGated     bool
	word, types *engine.Weight // [vocab, C], [types, C] or nil
	gamma, beta *engine.Weight
	slopes      *engine.Weight // [heads]
	blocks      []jinaBertBlock
}

type jinaBertBlock struct {
	qkv, qkvBias          *engine.Weight // [3·C, C]
	qGamma, qBeta         *engine.Weight // nil unless names.norms
	kGamma, kBeta         *engine.Weight
	out, outBias          *engine.Weight // [C, C]
	attGamma, attBeta     *engine.Weight
	sumGamma, sumBeta     *engine.Weight // nil unless names.norms
	up, upBias            *engine.Weight // [2·F, C] as packer.gated packs them, or [F, C]
	down, downBias        *engine.Weight // [C, F]
	blockGamma, blockBeta *engine.Weight
}

// load packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func (names *jinaBertNames) load(dir fs.FS, p *packer) (encoder, error) {
	config, err := readBertConfig(dir, jinaBertFamily)
	if err != nil {
		return nil, err
	}
	isGated, err := readFeedForward(dir)
	if err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.headDim(), "num_attention_heads"); err != nil {
		return nil, err
	}
	c := config.HiddenSize
	m := &jinaBertModel{names: names, config: config, isGated: isGated}
	p.findPrefix(wordTable, jinaBertFamily.prefixes)
	m.word = p.table(config.VocabSize, c, wordTable)
	m.types = p.types(config.TypeVocabSize, c)
	m.gamma, m.beta = p.norm(c, "embeddings.LayerNorm")
	m.slopes = p.values(engine.VectorWeight, 1, alibiSlopes(int(config.Heads)))
	for i := range config.Layers {
		m.blocks = append(m.blocks, m.loadBlock(p, fmt.Sprintf(encoderLayer, i)))
		if p.err != nil {
			return nil, p.err
		}
	}
	layers, _, _ := strings.Cut(encoderLayer, "%")
	p.refuseBlocksFrom(layers, keyed{"num_hidden_layers", config.Layers})
	return m, p.err
}

// readFeedForward reports whether the MLP is gated. The modelling files have different defaults, so
// the key is required.
func readFeedForward(dir fs.FS) (isGated bool, err error) {
	var c struct {
		Kind string `json:"feed_forward_type"`
	}
	if err := needJSON(dir, configFile, &c); err != nil {
		return false, err
	}
	if c.Kind != gatedMLP && c.Kind != plainMLP {
		return false, refuse(configFile, "feed_forward_type", "is %.60q or missing; supported are %s and %s",
			c.Kind, gatedMLP, plainMLP)
	}
	return c.Kind == gatedMLP, nil
}

// alibiSlopes returns the slope of each head. For n heads, a power of two, they are 2^(−8i/n) for i
// from 1. Other numbers take the slopes of the power below, and then every second one of the power
// above.
func alibiSlopes(heads int) []float32 {
	below := 1 << (bits.Len(uint(heads)) - 1)
	slopes := make([]float32, heads)
	for i := range slopes {
		exponent := float64(8*(i+1)) / float64(below)
		if i >= below {
			exponent = float64(4*(2*(i-below)+1)) / float64(below)
		}
		slopes[i] = float32(math.Pow(2, -exponent))
	}
	return slopes
}

// loadBlock packs the block whose tensors' names begin with at.
func (m *jinaBertModel) loadBlock(p *packer, at string) (b jinaBertBlock) {
	c, f, n := m.config.HiddenSize, m.config.IntermediateSize, encoderTensors
	q, k, v := at+n.query, at+n.key, at+n.value
	b.qkv = p.linear(c, c, q+".weight", k+".weight", v+".weight")
	b.qkvBias = p.vector(c, q+".bias", k+".bias", v+".bias")
	b.out = p.linearAfterAttention(c, c, at+n.out+".weight")
	b.outBias = p.vector(c, at+n.out+".bias")
	b.attGamma, b.attBeta = p.norm(c, at+n.attentionNorm)
	if m.names.norms {
		b.qGamma, b.qBeta = p.norm(c, at+"attention.self.layer_norm_q")
		b.kGamma, b.kBeta = p.norm(c, at+"attention.self.layer_norm_k")
		b.sumGamma, b.sumBeta = p.norm(c, at+"layer_norm_1")
	}
	down, blockNorm := at+m.names.down, at+m.names.blockNorm
	if m.isGated {
		gate, up := m.halves()
		tensor := at + m.names.gated + ".weight"
		b.up = p.gated(f, c, gateHalf{tensor, gate}, gateHalf{tensor, up})
	} else {
		plain := at + m.names.plain.up
		b.up = p.linear(f, c, plain+".weight")
		if m.names.plainBias {
			b.upBias = p.vector(f, plain+".bias")
		}
		down, blockNorm = at+m.names.plain.down, at+m.names.plain.blockNorm
	}
	b.down = p.linear(c, f, down+".weight")
	b.downBias = p.vector(c, down+".bias")
	b.blockGamma, b.blockBeta = p.norm(c, blockNorm)
	return b
}

// halves returns the first rows of the activated half of a gated matrix and of the other one.
func (m *jinaBertModel) halves() (gate, up int64) {
	if m.names.upFirst {
		return m.config.IntermediateSize, 0
	}
	return 0, m.config.IntermediateSize
}

func (m *jinaBertModel) forward(r *engine.Recorder, p pass) engine.Value {
	x := r.EmbedLayerNorm(engine.Embedding{Word: m.word, Type: m.types, Gamma: m.gamma, Beta: m.beta,
		Eps: float32(m.config.LayerNormEps)})
	p.see(0, x)
	for i, b := range m.blocks {
		x = m.block(r, p, x, b, i == len(m.blocks)-1)
		p.see(i+1, x)
	}
	return x
}

// block records one block.
func (m *jinaBertModel) block(
	r *engine.Recorder, p pass, x engine.Value, b jinaBertBlock, last bool,
) engine.Value {
	c, eps := m.config.HiddenSize, float32(m.config.LayerNormEps)
	attention := engine.Attention{Heads: int32(m.config.Heads), KVHeads: int32(m.config.Heads),
		HeadDim: int32(m.config.headDim()), Scale: float32(1 / math.Sqrt(float64(m.config.headDim()))),
		ALiBi: m.slopes}

	qkv := p.linear(r, x, b.qkv, b.qkvBias, engine.NoAct, engine.NoValue)
	q, k, v := r.Columns(qkv, 0, c), r.Columns(qkv, c, c), r.Columns(qkv, 2*c, c)
	if last && p.keep != engine.PoolMean {
		q, x = r.GatherRows(q, p.keep), r.GatherRows(x, p.keep)
		attention.Which = p.keep
	}
	if m.names.norms {
		q, k = r.LayerNorm(q, b.qGamma, b.qBeta, eps), r.LayerNorm(k, b.kGamma, b.kBeta, eps)
	}
	a := r.Attention(q, k, v, attention)
	y := r.LayerNorm(p.linear(r, a, b.out, b.outBias, engine.NoAct, x), b.attGamma, b.attBeta, eps)
	if m.names.norms {
		y, _ = r.Norm(y, engine.NormSpec{Residual: x, Gamma: b.sumGamma, Beta: b.sumBeta, Eps: eps})
	}
	var h engine.Value
	if m.isGated {
		h = p.gated(r, y, b.up, nil, engine.GEGLU, engine.NoValue)
	} else {
		h = p.linear(r, y, b.up, b.upBias, activations[m.config.HiddenAct], engine.NoValue)
	}
	return r.LayerNorm(p.linear(r, h, b.down, b.downBias, engine.NoAct, y), b.blockGamma, b.blockBeta, eps)
}

func (m *jinaBertModel) linears() []linear {
	c, f, n := m.config.HiddenSize, m.config.IntermediateSize, encoderTensors
	var all []linear
	for i, b := range m.blocks {
		at := fmt.Sprintf(encoderLayer, i)
		up := linear{weight: b.up, names: []string{at + m.names.plain.up}, n: f, k: c}
		down := linear{weight: b.down, names: []string{at + m.names.plain.down}, n: c, k: f}
		if m.isGated {
			gate, other := m.halves()
			up = linear{weight: b.up, names: []string{at + m.names.gated}, n: 2 * f, k: c,
				gated: &halves{gate, other}}
			down.names = []string{at + m.names.down}
		}
		all = append(all,
			linear{weight: b.qkv, names: []string{at + n.query, at + n.key, at + n.value}, n: c, k: c},
			linear{weight: b.out, names: []string{at + n.out}, n: c, k: c}, up, down)
	}
	return all
}

func (m *jinaBertModel) shape() encoderShape {
	c, f := float64(m.config.HiddenSize), float64(m.config.IntermediateSize)
	matrices := 4*c + 2*f
	if m.isGated {
		matrices += f
	}
	return encoderShape{
		columns:   m.config.HiddenSize,
		words:     m.config.HiddenSize,
		blocks:    int(m.config.Layers),
		positions: m.config.MaxPositionEmbeddings,
		vocab:     m.config.VocabSize,
		types:     m.config.TypeVocabSize,
		biased:    true,
		cost:      Cost{PerToken: 2 * float64(m.config.Layers) * c * matrices, PerPair: m.config.perPair()},
	}
}

func (m *jinaBertModel) heads() headNames {
	return (&bert{family: jinaBertFamily, config: m.config}).heads()
}
