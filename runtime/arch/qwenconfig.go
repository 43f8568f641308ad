package arch

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
)

// qwenFamily holds the differences between Qwen2 and Qwen3.
type qwenFamily struct {
	bias      bool // on q, k and v, whatever attention_bias says
	headNorms bool // RMSNorm of each head of q and k
	headDim   int64
	// bidirectional: tokens see all others, as the code of some repositories has it
	bidirectional bool
	eps           float64 // rms_norm_eps where the file has none; 0 = 1e-6
}

var (
	qwen2 = &qwenFamily{bias: true}
	qwen3 = &qwenFamily{headNorms: true, headDim: 128}
	// qwen2BothWays is what modeling_qwen.py of gte-Qwen2 and stella makes of Qwen2.
	qwen2BothWays = &qwenFamily{bias: true, bidirectional: true}
)

// qwenConfig holds the keys of config.json that the computation depends on.
type qwenConfig struct {
	decoderSizes

	HiddenAct        string          `json:"hidden_act"`
	RMSNormEps       float64         `json:"rms_norm_eps"`
	Tie              bool            `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	IsCausal         json.RawMessage `json:"is_causal"`
	UseSlidingWindow bool            `json:"use_sliding_window"`
	SlidingWindow    *int64          `json:"sliding_window"`
	MaxWindowLayers  int64           `json:"max_window_layers"`
	LayerTypes       []string        `json:"layer_types"`

	qkvBias, outBias, headNorms, bidirectional bool
	gate                                       engine.Gate
	rope                                       rope
}

// qwenNeutral lists keys of other decoders' configurations with the value that changes nothing. A
// file with another value was made for code that computes something else.
var qwenNeutral = map[string]any{
	"mlp_bias": false, "use_mrope": false, "attn_logit_softcapping": nil, "final_logit_softcapping": nil,
	"query_pre_attn_scalar": nil, "use_bidirectional_attention": false,
	"num_experts": nil, "add_cross_attention": false, "no_bias": true,
	"embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": nil,
	"logits_scaling": 1.0, "logit_scale": 1.0, "qk_layernorm": false, "use_qk_norm": true,
}

// readQwenConfig reads and checks config.json. Absent keys have the defaults of transformers where
// published models leave them out. Sizes are required.
func readQwenConfig(dir fs.FS, family *qwenFamily) (qwenConfig, error) {
	c := qwenConfig{HiddenAct: "silu", RMSNormEps: cmp.Or(family.eps, 1e-6), MaxWindowLayers: 28}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if err := refuseUnknownMeaning(dir, qwenNeutral); err != nil {
		return c, err
	}
	var given struct {
		KVHeads *int64 `json:"num_key_value_heads"`
		HeadDim *int64 `json:"head_dim"`
	}
	if err := needJSON(dir, configFile, &given); err != nil {
		return c, err
	}
	if given.KVHeads == nil {
		c.KVHeads = c.Heads
	}
	if given.HeadDim == nil && c.Heads > 0 {
		c.HeadDim = family.headDim
		if family.headDim == 0 {
			c.HeadDim = c.HiddenSize / c.Heads
		}
	}
	c.headNorms, c.gate = family.headNorms, gates[c.HiddenAct]
	c.qkvBias, c.outBias = family.bias || c.AttentionBias, !family.bias && c.AttentionBias
	causal := true
	if raw := c.IsCausal; raw != nil && (json.Unmarshal(raw, &causal) != nil || string(raw) == "null") {
		return c, refuse(configFile, "is_causal", "is %.60s; true or false is wanted", raw)
	}
	c.bidirectional = family.bidirectional || !causal
	if err := c.check(); err != nil {
		return c, err
	}
	var err error
	c.rope, err = readRope(dir, 10000)
	if err == nil && c.rope.part != 1 {
		err = refuse(configFile, "partial_rotary_factor", "is %g; this architecture rotates whole heads",
			c.rope.part)
	}
	return c, err
}

func (c *qwenConfig) check() error {
	if err := c.checkSizes(); err != nil {
		return err
	}
	if err := checkEpsilon("rms_norm_eps", c.RMSNormEps); err != nil {
		return err
	}
	if err := checkNamed("hidden_act", c.HiddenAct, gates); err != nil {
		return err
	}
	return c.checkWindows()
}

// checkWindows refuses blocks whose tokens see only the tokens before them that are near. Without
// use_sliding_window the other keys mean nothing.
func (c *qwenConfig) checkWindows() error {
	if n := int64(len(c.LayerTypes)); c.LayerTypes != nil && n != c.Layers {
		return refuse(configFile, "layer_types", "lists %d layers; num_hidden_layers is %d", n, c.Layers)
	}
	for i, kind := range c.LayerTypes {
		if kind != "full_attention" && kind != "sliding_attention" {
			return refuse(configFile, "layer_types",
				"has %.60q for layer %d; full_attention is supported", kind, i)
		}
	}
	slides := slices.Contains(c.LayerTypes, "sliding_attention")
	if c.UseSlidingWindow && c.SlidingWindow != nil {
		if *c.SlidingWindow >= c.Positions { // no text is longer than the window
			return nil
		}
		slides = slides || c.LayerTypes == nil && c.MaxWindowLayers < c.Layers
	}
	if slides {
		return refuse(configFile, "use_sliding_window",
			"asks for causal windows in some layers, which this server has no attention for; models are served where it is false, or where sliding_window is at least max_position_embeddings")
	}
	return nil
}
