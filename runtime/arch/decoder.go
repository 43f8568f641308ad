package arch

import (
	"fmt"

	"github.com/sie-engine/sie/runtime/engine"
)

// Qwen and Gemma are decoders of one build: their sizes have the same keys, and their blocks the
// same matrices under the same names. qwen.go and gemma.go say what stands between these: norms,
// positions, masks, scales.

// decoderSizes are the sizes of a decoder, as keys of config.json. C = hidden_size, F =
// intermediate_size, D = head_dim, H = num_attention_heads, G = num_key_value_heads.
type decoderSizes struct {
	HiddenSize       int64 `json:"hidden_size"`
	IntermediateSize int64 `json:"intermediate_size"`
	Layers           int64 `json:"num_hidden_layers"`
	Heads            int64 `json:"num_attention_heads"`
	KVHeads          int64 `json:"num_key_value_heads"`
	HeadDim          int64 `json:"head_dim"`
	Positions        int64 `json:"max_position_embeddings"`
	VocabSize        int64 `json:"vocab_size"`
}

func (c *decoderSizes) checkSizes() error {
	if err := checkSizes(
		sized{"hidden_size", c.HiddenSize, 1, 16384},
		sized{"intermediate_size", c.IntermediateSize, 1, 1 << 17},
		sized{"num_hidden_layers", c.Layers, 1, 256},
		sized{"num_attention_heads", c.Heads, 1, 256},
		sized{"num_key_value_heads", c.KVHeads, 1, 256},
		sized{"head_dim", c.HeadDim, 2, 1024},
		sized{"max_position_embeddings", c.Positions, 1, 1 << 18},
		sized{"vocab_size", c.VocabSize, 1, 1 << 22},
	); err != nil {
		return err
	}
	if err := checkDivides("num_key_value_heads", c.KVHeads, "num_attention_heads", c.Heads); err != nil {
		return err
	}
	if c.HeadDim%2 != 0 {
		return refuse(configFile, "head_dim", "is %d; rotary positions need an even number", c.HeadDim)
	}
	return nil
}

// wide and narrow are the columns of all heads of queries, and of keys.
func (c *decoderSizes) wide() int64   { return c.Heads * c.HeadDim }
func (c *decoderSizes) narrow() int64 { return c.KVHeads * c.HeadDim }

// perToken returns the floating-point operations of a block's linears for one token.
func (c *decoderSizes) perToken() float64 {
	return 2 * float64(c.HiddenSize) * float64(2*c.wide()+2*c.narrow()+3*c.IntermediateSize)
}

// perPair returns the floating-point operations of a block's attention for a pair of tokens.
func (c *decoderSizes) perPair() float64 { return 4 * float64(c.wide()) }

// attention returns full attention with scores that are multiplied by scale.
func (c *decoderSizes) attention(scale float64) engine.Attention {
	return engine.Attention{Heads: int32(c.Heads), KVHeads: int32(c.KVHeads), HeadDim: int32(c.HeadDim),
		Scale: float32(scale)}
}

// decoderTable and decoderBlock are the names of the table of words and of a block.
const (
	decoderTable  = "embed_tokens.weight"
	decoderLayers = "layers."
	decoderBlock  = decoderLayers + "%d."
)

// decoderPrefixes are what saving classes put before the names: nothing for the model alone,
// "model." for one with a head.
var decoderPrefixes = []string{"", "model.", "0.auto_model."}

// decoderLinears are the packed matrices of a block.
type decoderLinears struct {
	qkv, qkvBias *engine.Weight // [(H + 2·G)·D, C]; no bias: nil
	out, outBias *engine.Weight // [C, H·D]; no bias: nil
	gateUp       *engine.Weight // [2·F, C], as packer.gated packs them
	down         *engine.Weight // [C, F]
}

// pack packs the matrices of the block whose tensors' names begin with at.
func (c *decoderSizes) pack(p *packer, at string, qkvBias, outBias bool) (l decoderLinears) {
	q, k, v := at+"self_attn.q_proj", at+"self_attn.k_proj", at+"self_attn.v_proj"
	heights := []int64{c.wide(), c.narrow(), c.narrow()}
	l.qkv = p.stack(heights, c.HiddenSize, q+".weight", k+".weight", v+".weight")
	l.out = p.linearAfterAttention(c.HiddenSize, c.wide(), at+"self_attn.o_proj.weight")
	if qkvBias {
		l.qkvBias = p.stackVectors(heights, q+".bias", k+".bias", v+".bias")
	}
	if outBias {
		l.outBias = p.vector(c.HiddenSize, at+"self_attn.o_proj.bias")
	}
	l.gateUp = p.gated(c.IntermediateSize, c.HiddenSize,
		gateHalf{at + "mlp.gate_proj.weight", 0}, gateHalf{at + "mlp.up_proj.weight", 0})
	l.down = p.linear(c.HiddenSize, c.IntermediateSize, at+"mlp.down_proj.weight")
	return l
}

// columns returns views of the queries, keys and values in the columns of qkv.
func (c *decoderSizes) columns(r *engine.Recorder, qkv engine.Value) (q, k, v engine.Value) {
	wide, narrow := c.wide(), c.narrow()
	return r.Columns(qkv, 0, wide), r.Columns(qkv, wide, narrow), r.Columns(qkv, wide+narrow, narrow)
}

// mlp records the gated MLP of h.
func (l *decoderLinears) mlp(
	r *engine.Recorder, p pass, h engine.Value, gate engine.Gate,
) engine.Value {
	h = p.gated(r, h, l.gateUp, nil, gate, engine.NoValue)
	return p.linear(r, h, l.down, nil, engine.NoAct, engine.NoValue)
}

// linears returns the matrices of block i, by their names.
func (l *decoderLinears) linears(c *decoderSizes, i int) []linear {
	at := fmt.Sprintf(decoderBlock, i)
	return []linear{
		{weight: l.qkv, k: c.HiddenSize, rows: []int64{c.wide(), c.narrow(), c.narrow()},
			names: []string{at + "self_attn.q_proj", at + "self_attn.k_proj", at + "self_attn.v_proj"}},
		{weight: l.out, n: c.HiddenSize, k: c.wide(), names: []string{at + "self_attn.o_proj"}},
		{weight: l.gateUp, n: c.IntermediateSize, k: c.HiddenSize,
			gated: &halves{gate: 0, up: c.IntermediateSize},
			names: []string{at + "mlp.gate_proj", at + "mlp.up_proj"}},
		{weight: l.down, n: c.HiddenSize, k: c.IntermediateSize, names: []string{at + "mlp.down_proj"}},
	}
}
