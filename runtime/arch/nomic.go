package arch

import (
	"bytes"
	"encoding/json"
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// NomicBERT (Nussbaum 2024, arXiv:2402.01613) is the encoder of nomic-embed-text v1 and v1.5. Its
// repositories have the keys of GPT-2 in config.json; transformers' class has BERT's, and no
// biases. What it computes is in postnorm.go.

// nomicPublished holds the keys of published files that the computation depends on.
type nomicPublished struct {
	HiddenSize       int64   `json:"n_embd"`
	Heads            int64   `json:"n_head"`
	Layers           int64   `json:"n_layer"`
	IntermediateSize int64   `json:"n_inner"`
	Positions        int64   `json:"n_positions"`
	VocabSize        int64   `json:"vocab_size"`
	VocabMultiple    int64   `json:"pad_vocab_size_multiple"` // of which the table of words has rows
	Types            int64   `json:"type_vocab_size"`
	Activation       string  `json:"activation_function"`
	NormEps          float64 `json:"layer_norm_epsilon"`
	QKVBias          bool    `json:"qkv_proj_bias"`
	GateBias         bool    `json:"mlp_fc1_bias"` // and that of the head over the vocabulary
	DownBias         bool    `json:"mlp_fc2_bias"`

	Theta    float64 `json:"rotary_emb_base"`
	Fraction float64 `json:"rotary_emb_fraction"` // of a head's columns that are rotated
	Factor   float64 `json:"rotary_scaling_factor"`
	Trained  int64   `json:"max_trained_positions"` // beyond which Factor has an effect
	KVHeads  *int64  `json:"num_heads_kv"`
}

// nomicSaved holds the keys of files that transformers' class saved.
type nomicSaved struct {
	HiddenSize       int64   `json:"hidden_size"`
	Heads            int64   `json:"num_attention_heads"`
	Layers           int64   `json:"num_hidden_layers"`
	IntermediateSize int64   `json:"intermediate_size"`
	Positions        int64   `json:"max_position_embeddings"`
	VocabSize        int64   `json:"vocab_size"`
	Types            int64   `json:"type_vocab_size"`
	Activation       string  `json:"hidden_act"`
	NormEps          float64 `json:"layer_norm_eps"`
	HeadDim          *int64  `json:"head_dim"`
}

var (
	nomicSizes = [7]string{"n_embd", "n_head", "n_layer", "n_inner", "n_positions", "vocab_size",
		"type_vocab_size"}
	nomicSavedSizes = [7]string{"hidden_size", "num_attention_heads", "num_hidden_layers",
		"intermediate_size", "max_position_embeddings", "vocab_size", "type_vocab_size"}
)

// nomicSame lists keys of the two forms that say the same. A file may have both forms. The numbers
// of positions may differ: transformers' class has that of the training.
var nomicSame = [][2]string{{"n_embd", "hidden_size"}, {"n_head", "num_attention_heads"},
	{"n_layer", "num_hidden_layers"}, {"n_inner", "intermediate_size"},
	{"layer_norm_epsilon", "layer_norm_eps"}, {"rotary_emb_base", "rope_theta"}}

// nomicNeutral lists keys with the value that changes nothing. The last ones are of other models.
var nomicNeutral = map[string]any{
	"prenorm": false, "parallel_block": false, "parallel_block_tied_norm": false, "causal": false,
	"use_rms_norm": false, "rotary_emb_interleaved": false, "rotary_emb_scale_base": nil,
	"rotary_head_dim": false, "norm_mlp": false, "scale_attn_weights": true,
	"scale_attn_by_inverse_layer_idx": false, "learned_pos_embedding": false,
	"sinusoidal_pos_embedding": false, "moe_normalize_expert_weights": false,
	"is_decoder": false, "add_cross_attention": false, "attn_logit_softcapping": nil,
	"sliding_window": nil, "layer_types": nil,
}

// nomicGates maps the published names to the functions of a gated linear.
var nomicGates = map[string]engine.Gate{"swiglu": engine.SwiGLU, "geglu": engine.GEGLU}

// nomicMultiple is what the published code rounds the width of the MLP up to a multiple of.
const nomicMultiple = 256

var nomicNames = postNormNames{
	prefixes: []string{"", "bert.", "nomic_bert.", "model.", "0.auto_model."},
	norm:     "emb_ln",
	layers:   "encoder.layers.",
	qkv:      []string{"attn.Wqkv"},
	out:      "attn.out_proj",
	attNorm:  "norm1",
	gate:     "mlp.fc12",
	up:       "mlp.fc11",
	down:     "mlp.fc2",
	mlpNorm:  "norm2",
}

// loadNomic packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadNomic(dir fs.FS, p *packer) (encoder, error) {
	var keys map[string]json.RawMessage
	if err := needJSON(dir, configFile, &keys); err != nil {
		return nil, err
	}
	if err := checkNomicKeys(dir, keys); err != nil {
		return nil, err
	}
	config, sizes, err := postNormConfig{}, nomicSizes, error(nil)
	if keys["n_embd"] != nil {
		config, err = readNomicPublished(dir)
	} else {
		sizes = nomicSavedSizes
		config, err = readNomicSaved(dir)
	}
	if err == nil {
		err = config.check(sizes)
	}
	if err != nil {
		return nil, err
	}
	return loadPostNorm(p, config, &nomicNames, sizes[1])
}

// checkNomicKeys refuses experts, other keys that would change the computation, and keys that
// contradict each other.
func checkNomicKeys(dir fs.FS, keys map[string]json.RawMessage) error {
	for _, key := range []string{"num_experts", "moe_every_n_layers", "num_shared_experts"} {
		var n float64
		if raw := keys[key]; raw != nil && (json.Unmarshal(raw, &n) != nil || n != 0) {
			return refuse(configFile, key,
				"is %.40s: NomicBERT with experts, as nomic-embed-text-v2-moe has them, is not supported", raw)
		}
	}
	if err := refuseUnknownMeaning(dir, nomicNeutral); err != nil {
		return err
	}
	for _, same := range nomicSame {
		a, b := keys[same[0]], keys[same[1]]
		var x, y float64
		if a == nil || b == nil || json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			continue // the reader of the form looks at what it needs
		}
		if x != y && !bytes.Equal(b, []byte("null")) {
			return refuse(configFile, same[1], "is %.40s, and %s is %.40s; they say the same", b, same[0], a)
		}
	}
	return nil
}

func readNomicPublished(dir fs.FS) (postNormConfig, error) {
	c := nomicPublished{VocabMultiple: 1, Types: 2, NormEps: 1e-5, QKVBias: true, GateBias: true,
		DownBias: true, Theta: 10000, Trained: 2048}
	if err := needJSON(dir, configFile, &c); err != nil {
		return postNormConfig{}, err
	}
	if err := checkNamed("activation_function", c.Activation, nomicGates); err != nil {
		return postNormConfig{}, err
	}
	for _, number := range []struct {
		key             string
		value, from, to float64
	}{{"rotary_emb_base", c.Theta, 1.001, 1e15}, {"rotary_scaling_factor", c.Factor, 0, 1e6},
		{"max_trained_positions", float64(c.Trained), 1, 1 << 17}} {
		if !(number.value >= number.from && number.value <= number.to) {
			return postNormConfig{}, refuse(configFile, number.key, "is %g; %.10g to %g is possible",
				number.value, number.from, number.to)
		}
	}
	switch {
	case c.Fraction != 1:
		return postNormConfig{}, refuse(configFile, "rotary_emb_fraction",
			"is %g or missing; 1 is supported, with which whole heads are rotated", c.Fraction)
	case c.KVHeads != nil && *c.KVHeads != c.Heads:
		return postNormConfig{}, refuse(configFile, "num_heads_kv", "is %d; NomicBERT has n_head, %d",
			*c.KVHeads, c.Heads)
	case c.VocabMultiple < 1 || c.VocabMultiple > 1<<16:
		return postNormConfig{}, refuse(configFile, "pad_vocab_size_multiple", "is %d; 1 to %d is possible",
			c.VocabMultiple, 1<<16)
	}
	gate := nomicGates[c.Activation]
	config := postNormConfig{
		hidden:    c.HiddenSize,
		heads:     c.Heads,
		layers:    keyed{value: c.Layers},
		inner:     roundUp(c.IntermediateSize, nomicMultiple),
		positions: c.Positions,
		vocab:     roundUp(c.VocabSize, c.VocabMultiple),
		types:     c.Types,
		eps:       c.NormEps,
		gate:      gate,
		qkvBias:   c.QKVBias,
		gateBias:  c.GateBias,
		downBias:  c.DownBias,
		rope:      newRope(c.Theta, c.Positions),
		head:      nomicHeads(gate, c.NormEps, c.GateBias),
	}
	if c.Factor != 0 { // beyond Trained the angles depend on the length of a text
		config.rope = newRope(c.Theta, c.Trained)
		config.rope.kind, config.rope.factor = "dynamic", c.Factor
	}
	return config, checkEpsilon("layer_norm_epsilon", c.NormEps)
}

// roundUp returns the first multiple of m from n on.
func roundUp(n, m int64) int64 {
	if n < 1 || n > 1<<30 {
		return n // which is refused
	}
	return (n + m - 1) / m * m
}

func readNomicSaved(dir fs.FS) (postNormConfig, error) {
	c := nomicSaved{Types: 2, Activation: "silu", NormEps: 1e-12}
	if err := needJSON(dir, configFile, &c); err != nil {
		return postNormConfig{}, err
	}
	if err := checkNamed("hidden_act", c.Activation, gates); err != nil {
		return postNormConfig{}, err
	}
	gate := gates[c.Activation]
	config := postNormConfig{
		hidden:    c.HiddenSize,
		heads:     c.Heads,
		layers:    keyed{value: c.Layers},
		inner:     c.IntermediateSize,
		positions: c.Positions,
		vocab:     c.VocabSize,
		types:     c.Types,
		eps:       c.NormEps,
		gate:      gate,
		head:      nomicHeads(gate, c.NormEps, true),
	}
	if err := checkEpsilon("layer_norm_eps", c.NormEps); err != nil {
		return config, err
	}
	if c.HeadDim != nil && *c.HeadDim*c.Heads != c.HiddenSize {
		return config, refuse(configFile, "head_dim",
			"is %d; NomicBERT has hidden_size / num_attention_heads here", *c.HeadDim)
	}
	var err error
	if config.rope, err = readRope(dir, 1000); err == nil && config.rope.part != 1 {
		err = refuse(configFile, "rope_parameters.partial_rotary_factor",
			"is %g; NomicBERT rotates whole heads", config.rope.part)
	}
	return config, err
}

// nomicHeads returns the names of the layers behind the encoder.
func nomicHeads(gate engine.Gate, eps float64, bias bool) headNames {
	act := map[engine.Gate]engine.Act{engine.SwiGLU: engine.SiLU, engine.GEGLU: engine.GELU,
		engine.GEGLUTanh: engine.GELUTanh}[gate]
	h := headNames{
		pooler: transformNames{dense: "pooler.dense", inEncoder: true, act: engine.Tanh},
		logits: "classifier",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{dense: "cls.predictions.transform.dense", noBias: !bias, act: act,
				norm: "cls.predictions.transform.layer_norm", eps: eps},
			words:   wordTable,
			decoder: "cls.predictions.decoder",
		},
	}
	if bias {
		h.masked.biases = []string{"cls.predictions.decoder.bias", "cls.predictions.bias"}
	}
	return h
}
