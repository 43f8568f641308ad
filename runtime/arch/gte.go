package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// GTE (Zhang 2024, arXiv:2407.19669) is the encoder that Alibaba's repositories call "new":
// gte-multilingual, gte-en-v1.5, stella 400M, opensearch doc-v3-gte, and arctic-embed-m-v2.0, whose
// copy has the model_type "gte", as has transformers' class. What it computes is in postnorm.go.

// gteConfig holds the keys of config.json that the computation depends on.
type gteConfig struct {
	HiddenSize       int64   `json:"hidden_size"`
	Heads            int64   `json:"num_attention_heads"`
	Layers           int64   `json:"num_hidden_layers"`
	IntermediateSize int64   `json:"intermediate_size"`
	Positions        int64   `json:"max_position_embeddings"`
	VocabSize        int64   `json:"vocab_size"`
	Types            int64   `json:"type_vocab_size"`
	Activation       string  `json:"hidden_act"`
	NormEps          float64 `json:"layer_norm_eps"`
	NormType         string  `json:"layer_norm_type"`
	PositionType     string  `json:"position_embedding_type"`
	Packed           bool    `json:"pack_qkv"` // whether the projections of attention are one tensor

	AutoMap map[string]any `json:"auto_map"`

	gteRefused
}

// gteRefused are keys that would change the computation. LogN scales queries by the length of the
// text; clipping alone has no effect.
type gteRefused struct {
	LogN          bool   `json:"logn_attention_scale"`
	HeadDim       *int64 `json:"head_dim"`
	EmbeddingSize *int64 `json:"embedding_size"`
	KVHeads       *int64 `json:"num_key_value_heads"`
}

var gteSizes = [7]string{"hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
	"max_position_embeddings", "vocab_size", "type_vocab_size"}

// gteNeutral lists keys of other configurations with the value that changes nothing.
var gteNeutral = map[string]any{
	"is_decoder": false, "add_cross_attention": false, "attn_logit_softcapping": nil, "num_experts": nil,
	"sliding_window": nil, "layer_types": nil, "mlp_bias": false,
}

var (
	gteNames = postNormNames{
		prefixes: []string{"", "new.", "gte.", "model.", "0.auto_model."},
		norm:     "embeddings.LayerNorm",
		layers:   "encoder.layer.",
		qkv:      []string{"attention.qkv_proj"},
		out:      "attention.o_proj",
		attNorm:  "attn_ln",
		gate:     "mlp.up_gate_proj",
		up:       "mlp.up_gate_proj",
		down:     "mlp.down_proj",
		mlpNorm:  "mlp_ln",
	}
	gteUnpackedNames = unpacked(gteNames)
)

func unpacked(n postNormNames) postNormNames {
	n.qkv = []string{"attention.q_proj", "attention.k_proj", "attention.v_proj"}
	return n
}

// gteFamily says whose class a model_type is of.
type gteFamily struct {
	theta   float64 // the base where a file gives none
	library bool    // transformers', where the repository names no code
}

var (
	gteAlibaba      = &gteFamily{theta: 10000}
	gteTransformers = &gteFamily{theta: 160000, library: true}
)

// load packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func (family *gteFamily) load(dir fs.FS, p *packer) (encoder, error) {
	c := gteConfig{Types: 1, Activation: "gelu", NormEps: 1e-12, NormType: "layer_norm",
		PositionType: "rope", Packed: true}
	if err := needJSON(dir, configFile, &c); err != nil {
		return nil, err
	}
	if err := c.checkRefused(dir); err != nil {
		return nil, err
	}
	config := postNormConfig{
		hidden:    c.HiddenSize,
		heads:     c.Heads,
		layers:    keyed{value: c.Layers},
		inner:     c.IntermediateSize,
		positions: c.Positions,
		vocab:     c.VocabSize,
		types:     c.Types,
		eps:       c.NormEps,
		gate:      gates[c.Activation],
		qkvBias:   true,
		downBias:  true,
		head:      gteHeads(c.wordsAct(family), c.NormEps),
	}
	if err := config.check(gteSizes); err != nil {
		return nil, err
	}
	for _, same := range []struct {
		key   string
		given *int64
		own   int64
	}{{"head_dim", c.HeadDim, config.headDim()}, {"embedding_size", c.EmbeddingSize, c.HiddenSize},
		{"num_key_value_heads", c.KVHeads, c.Heads}} {
		if same.given != nil && *same.given != same.own {
			return nil, refuse(configFile, same.key, "is %d; GTE has %d here", *same.given, same.own)
		}
	}
	var err error
	if config.rope, err = c.readRope(dir, family); err != nil {
		return nil, err
	}
	names := &gteNames
	if !c.Packed {
		names = &gteUnpackedNames
	}
	return loadPostNorm(p, config, names, gteSizes[1])
}

// wordsAct is the activation before the words' logits: hidden_act in published code, and GELU in
// transformers' class, whatever hidden_act is.
func (c *gteConfig) wordsAct(family *gteFamily) engine.Act {
	if family.library && c.AutoMap == nil {
		return engine.GELU
	}
	return activations[c.Activation]
}

func (c *gteConfig) checkRefused(dir fs.FS) error {
	if err := refuseUnknownMeaning(dir, gteNeutral); err != nil {
		return err
	}
	if err := checkEpsilon("layer_norm_eps", c.NormEps); err != nil {
		return err
	}
	if err := checkNamed("hidden_act", c.Activation, gates); err != nil {
		return err
	}
	if c.NormType != "layer_norm" {
		return refuse(configFile, "layer_norm_type", "is %.60q; layer_norm is supported", c.NormType)
	}
	if c.PositionType != "rope" {
		return refuse(configFile, "position_embedding_type", "is %.60q; rope is supported", c.PositionType)
	}
	if c.LogN {
		return refuse(configFile, "logn_attention_scale",
			"is true; queries that are scaled by the logarithm of the length are not supported")
	}
	return nil
}

// readRope reads the rotary embeddings. Published code has one kind of stretching; transformers'
// class has the others. Where a repository has code of its own beside transformers' model_type, as
// arctic's, a base that its file leaves out is not known.
func (c *gteConfig) readRope(dir fs.FS, family *gteFamily) (rope, error) {
	library, theta := family.library && c.AutoMap == nil, family.theta
	if family.library && !library {
		theta = 0
	}
	r, err := readRope(dir, theta)
	switch {
	case err != nil:
		return r, err
	case r.part != 1:
		return r, refuse(configFile, "rope_parameters.partial_rotary_factor",
			"is %g; GTE rotates whole heads", r.part)
	case r.kind == "ntk" && r.factor < 1:
		return r, refuse(configFile, "rope_scaling.factor", "is %g; GTE's ntk stretches by 1 or more",
			r.factor)
	case r.kind != "ntk" && r.kind != "default" && !library:
		return r, refuse(configFile, "rope_scaling.type", "is %q; the code of these models has ntk alone",
			r.kind)
	}
	return r, nil
}

// gteHeads returns the names of the layers behind the encoder.
func gteHeads(act engine.Act, eps float64) headNames {
	return headNames{
		pooler: transformNames{dense: "pooler.dense", inEncoder: true, act: engine.Tanh},
		logits: "classifier",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{dense: "lm_head.dense", act: act, norm: "lm_head.norm", eps: eps},
			words:     wordTable,
			decoder:   "lm_head.decoder",
			biases:    []string{"lm_head.decoder.bias"},
		},
	}
}
