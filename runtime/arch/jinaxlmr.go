package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// Jina's XLM-R (Sturua 2024, arXiv:2409.10173) is XLM-R with one matrix for queries, keys and
// values, and with names of its own. position_embedding_type decides whether positions are learned
// or rotate queries and keys. It is the encoder of jina-reranker-v2 (learned), jina-colbert-v2 (Jha
// 2024, arXiv:2408.16672) and jina-embeddings-v3 (rotary).

var jinaXLMRTensors = bertTensors{qkv: "mixer.Wqkv", out: "mixer.out_proj", attentionNorm: "norm1",
	up: "mlp.fc1", down: "mlp.fc2", blockNorm: "norm2"}

// jinaXLMRNames holds its names in the form of BERT's family, with learned positions. Defaults of
// sizes and of the epsilon differ from version to version of its code, so these keys are required.
var jinaXLMRNames = bertFamily{
	prefixes:  robertaNames.prefixes,
	block:     "encoder.layers.%d.",
	names:     jinaXLMRTensors,
	embedNorm: "emb_ln",
	heads:     robertaNames.heads,
	defaults: bertConfig{HiddenAct: "gelu", TypeVocabSize: -1, PadTokenID: 1,
		PositionEmbeddingType: "absolute"},
	positionsAfterPad: true,
}

// jinaXLMRRotary is the same with positions that rotate queries and keys, from 0.
var jinaXLMRRotary = func() bertFamily {
	f := jinaXLMRNames
	f.positions, f.positionsAfterPad = "rotary", false
	return f
}()

// jinaXLMRKeys are the keys of config.json that BERT does not have.
type jinaXLMRKeys struct {
	Positions   string   `json:"position_embedding_type"`
	HiddenAct   string   `json:"hidden_act"`
	HiddenSize  int64    `json:"hidden_size"`
	Heads       int64    `json:"num_attention_heads"`
	MaxPosition int64    `json:"max_position_embeddings"`
	VocabSize   int64    `json:"vocab_size"`
	Base        float64  `json:"rotary_emb_base"`
	RotaryDim   *float64 `json:"rotary_emb_dim"`
	ScaleBase   *float64 `json:"rotary_emb_scale_base"`
	Interleaved bool     `json:"rotary_emb_interleaved"`
	Subset      bool     `json:"last_layer_subset"`
	VocabStep   int64    `json:"pad_vocab_size_multiple"`
}

// readJinaXLMRKeys reads these keys and refuses what is not computed here. The sizes among them are
// checked with the others of BERT.
func readJinaXLMRKeys(dir fs.FS) (jinaXLMRKeys, error) {
	c := jinaXLMRKeys{Base: 10000, VocabStep: 1, HiddenAct: "gelu"}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if c.Positions != "absolute" && c.Positions != "rotary" {
		return c, refuse(configFile, "position_embedding_type",
			"is %.60q or missing; supported are absolute and rotary", c.Positions)
	}
	if act := activations[c.HiddenAct]; act != engine.GELU && act != engine.GELUTanh {
		return c, refuse(configFile, "hidden_act",
			"is %.60q; Jina's XLM-R has gelu, gelu_new, gelu_fast and gelu_pytorch_tanh", c.HiddenAct)
	}
	if c.Subset {
		return c, refuse(configFile, "last_layer_subset", "is supported nowhere but in pretraining")
	}
	if c.VocabStep < 1 || c.VocabSize%c.VocabStep != 0 {
		return c, refuse(configFile, "pad_vocab_size_multiple", "is %d and does not divide vocab_size, %d",
			c.VocabStep, c.VocabSize)
	}
	if c.Positions == "absolute" {
		return c, nil
	}
	if c.ScaleBase != nil || c.Interleaved {
		return c, refuse(configFile, "rotary_emb_scale_base",
			"and rotary_emb_interleaved are not supported; remove them")
	}
	if c.RotaryDim != nil && *c.RotaryDim*float64(c.Heads) != float64(c.HiddenSize) {
		return c, refuse(configFile, "rotary_emb_dim", "is %g; only whole heads are rotated", *c.RotaryDim)
	}
	return c, nil
}

// loadJinaXLMR packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadJinaXLMR(dir fs.FS, p *packer) (encoder, error) {
	keys, err := readJinaXLMRKeys(dir)
	if err != nil {
		return nil, err
	}
	if keys.Positions == "absolute" {
		return jinaXLMRNames.load(dir, p)
	}
	r := newRope(keys.Base, keys.MaxPosition)
	if err := r.check("rotary_emb_base"); err != nil {
		return nil, err
	}
	e, err := jinaXLMRRotary.load(dir, p)
	if err != nil {
		return nil, err
	}
	b := e.(*bert)
	b.rotary = p.rope(&r, b.config.headDim(), b.config.MaxPositionEmbeddings)
	return b, p.err
}
