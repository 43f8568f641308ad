package arch

import (
	"fmt"

	"github.com/sie-engine/sie/runtime/engine"
)

// GTE and NomicBERT are BERT with rotated queries and keys in place of learned positions, and a
// gate in the MLP: full attention, and a LayerNorm behind each half of a block. gte.go and nomic.go
// read their configurations and hold their names.

// postNorm holds the packed weights. C = hidden, F = inner.
type postNorm struct {
	config      postNormConfig
	names       *postNormNames
	word, types *engine.Weight // [vocab, C], [types, C] or nil
	gamma, beta *engine.Weight
	rotary      rotary
	blocks      []postNormBlock
}

// postNormConfig holds what the computation depends on, whatever its keys are called.
type postNormConfig struct {
	hidden, heads, inner        int64
	layers                      keyed // keyed by check
	positions, vocab, types     int64
	eps                         float64
	gate                        engine.Gate
	rope                        rope
	qkvBias, gateBias, downBias bool // qkvBias is also attention's output's

	head headNames
}

// postNormNames holds the names of a family's tensors, and of its linears in transformers, which
// PEFT uses where a model was trained with transformers' own class.
type postNormNames struct {
	prefixes         []string
	norm             string // of the embeddings
	layers           string // before a block's number
	qkv              []string
	out, down        string
	gate, up         string // one name: a tensor that holds up first
	attNorm, mlpNorm string
}

// transformersLinears are the names of transformers' classes for both families. Its checkpoints
// have the published names.
var transformersLinears = postNormNames{
	layers: "layers.",
	qkv:    []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
	out:    "self_attn.o_proj",
	gate:   "mlp.gate_proj",
	up:     "mlp.up_proj",
	down:   "mlp.down_proj",
}

// postNormBlock is one block. Biases are nil where the configuration has none.
type postNormBlock struct {
	qkv, qkvBias          *engine.Weight // [3·C, C]
	out, outBias          *engine.Weight // [C, C]
	attGamma, attBeta     *engine.Weight
	gated, gatedBias      *engine.Weight // [2·F, C], as packer.gated packs them
	down, downBias        *engine.Weight // [C, F]
	blockGamma, blockBeta *engine.Weight
}

// check refuses sizes that no model has. keys holds the file's names of the sizes, in this order.
func (c *postNormConfig) check(keys [7]string) error {
	c.layers.key = keys[2]
	sizes := encoderSizes{hidden: keyed{keys[0], c.hidden}, heads: keyed{keys[1], c.heads},
		layers: c.layers, inner: keyed{keys[3], c.inner},
		positions: keyed{keys[4], c.positions}, vocab: keyed{keys[5], c.vocab}}
	return sizes.check(sized{keys[6], c.types, 0, 1024})
}

func (c *postNormConfig) headDim() int64 { return c.hidden / c.heads }

// loadPostNorm packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors. heads
// is the key of config.json that sets the number of heads.
func loadPostNorm(p *packer, config postNormConfig, names *postNormNames, heads string) (encoder, error) {
	if err := p.checkHeadDim(config.headDim(), heads); err != nil {
		return nil, err
	}
	m, c := &postNorm{config: config, names: names}, config.hidden
	p.findPrefix(wordTable, names.prefixes)
	p.refuseBlocksFrom(names.layers, config.layers)
	m.word = p.table(config.vocab, c, wordTable)
	if config.types > 0 {
		m.types = p.table(config.types, c, "embeddings.token_type_embeddings.weight")
	}
	m.gamma, m.beta = p.norm(c, names.norm)
	m.rotary = p.ropeByLength(&m.config.rope, config.headDim(), config.positions)
	for i := range config.layers.value {
		m.blocks = append(m.blocks, m.loadBlock(p, fmt.Sprintf("%s%d.", names.layers, i)))
		if p.err != nil {
			break
		}
	}
	return m, p.err
}

// loadBlock packs the block whose tensors' names begin with at.
func (m *postNorm) loadBlock(p *packer, at string) (b postNormBlock) {
	c, f, n := m.config.hidden, m.config.inner, m.names
	all := func(of string) (names []string) {
		for _, name := range n.qkv {
			names = append(names, at+name+of)
		}
		return names
	}
	rows := 3 * c / int64(len(n.qkv))
	b.qkv = p.linear(rows, c, all(".weight")...)
	b.out = p.linearAfterAttention(c, c, at+n.out+".weight")
	if m.config.qkvBias {
		b.qkvBias, b.outBias = p.vector(rows, all(".bias")...), p.vector(c, at+n.out+".bias")
	}
	b.attGamma, b.attBeta = p.norm(c, at+n.attNorm)
	halves := n.halves(f)
	b.gated = p.gated(f, c, gateHalf{at + n.gate + ".weight", halves.gate},
		gateHalf{at + n.up + ".weight", halves.up})
	if m.config.gateBias {
		b.gatedBias = p.gatedBias(f, gateHalf{at + n.gate + ".bias", halves.gate},
			gateHalf{at + n.up + ".bias", halves.up})
	}
	b.down = p.linear(c, f, at+n.down+".weight")
	if m.config.downBias {
		b.downBias = p.vector(c, at+n.down+".bias")
	}
	b.blockGamma, b.blockBeta = p.norm(c, at+n.mlpNorm)
	return b
}

// halves returns where the halves of a gated linear begin in their tensors.
func (n *postNormNames) halves(f int64) halves {
	if n.gate == n.up {
		return halves{gate: f, up: 0}
	}
	return halves{}
}

func (m *postNorm) forward(r *engine.Recorder, p pass) engine.Value {
	x := r.EmbedLayerNorm(engine.Embedding{Word: m.word, Type: m.types, Gamma: m.gamma, Beta: m.beta,
		Eps: float32(m.config.eps)})
	p.see(0, x)
	for i, b := range m.blocks {
		x = m.block(r, p, x, b, i == len(m.blocks)-1)
		p.see(i+1, x)
	}
	return x
}

// block records one block: the norm of x plus attention, then the norm of that plus the MLP.
func (m *postNorm) block(
	r *engine.Recorder, p pass, x engine.Value, b postNormBlock, last bool,
) engine.Value {
	c, eps := m.config.hidden, float32(m.config.eps)
	attention := engine.Attention{Heads: int32(m.config.heads), KVHeads: int32(m.config.heads),
		HeadDim: int32(m.config.headDim())}
	qkv := p.linear(r, x, b.qkv, b.qkvBias, engine.NoAct, engine.NoValue)
	q, k, v := r.Columns(qkv, 0, c), r.Columns(qkv, c, c), r.Columns(qkv, 2*c, c)
	m.rotary.rotate(r, q, k, attention)
	if p.attendKept {
		k, v = r.KeepRows(k), r.KeepRows(v)
	}
	if last && p.keep != engine.PoolMean {
		q, x = r.GatherRows(q, p.keep), r.GatherRows(x, p.keep)
	}
	a := r.Attention(q, k, v, attention)
	x = r.LayerNorm(p.linear(r, a, b.out, b.outBias, engine.NoAct, x), b.attGamma, b.attBeta, eps)
	h := p.gated(r, x, b.gated, b.gatedBias, m.config.gate, engine.NoValue)
	return r.LayerNorm(p.linear(r, h, b.down, b.downBias, engine.NoAct, x), b.blockGamma, b.blockBeta, eps)
}

// linears returns each matrix by its published names and by those of transformers.
func (m *postNorm) linears() []linear {
	c, f := m.config.hidden, m.config.inner
	var all []linear
	for i, b := range m.blocks {
		for _, n := range []*postNormNames{m.names, &transformersLinears} {
			at := fmt.Sprintf("%s%d.", n.layers, i)
			qkv := linear{weight: b.qkv, n: 3 * c / int64(len(n.qkv)), k: c}
			for _, name := range n.qkv {
				qkv.names = append(qkv.names, at+name)
			}
			gated := linear{weight: b.gated, names: []string{at + n.gate, at + n.up}, n: f, k: c,
				gated: &halves{gate: 0, up: f}}
			if n.gate == n.up {
				gated = linear{weight: b.gated, names: []string{at + n.up}, n: 2 * f, k: c,
					gated: &halves{gate: f, up: 0}}
			}
			all = append(all, qkv, linear{weight: b.out, names: []string{at + n.out}, n: c, k: c}, gated,
				linear{weight: b.down, names: []string{at + n.down}, n: c, k: f})
		}
	}
	return all
}

func (m *postNorm) shape() encoderShape {
	c, f, layers := float64(m.config.hidden), float64(m.config.inner), float64(m.config.layers.value)
	return encoderShape{
		columns:   m.config.hidden,
		words:     m.config.hidden,
		blocks:    int(m.config.layers.value),
		positions: m.config.positions,
		vocab:     m.config.vocab,
		types:     m.config.types,
		cost:      Cost{PerToken: 2 * layers * c * (4*c + 3*f), PerPair: 4 * layers * c},
	}
}

func (m *postNorm) heads() headNames { return m.config.head }
