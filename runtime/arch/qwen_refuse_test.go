package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// changeJSON sets keys of a JSON object in a file.
func changeJSON(t *testing.T, dir, name string, changes map[string]any) {
	t.Helper()
	path, all := filepath.Join(dir, name), make(map[string]any)
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	for key, value := range changes {
		all[key] = value
	}
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a configuration asks for is done or refused by name.
func TestQwenRefusals(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.CPU, Threads: 1})
	for _, c := range []struct {
		key   string
		value any
		want  string // "": served
	}{
		{"hidden_act", "relu", "config.json: hidden_act: is \"relu\"; supported are gelu"},
		{"mlp_bias", true, "config.json: mlp_bias: is true, which changes"},
		{"attn_logit_softcapping", 50.0, "attn_logit_softcapping: is 50"},
		{"quantization_config", map[string]any{"bits": 4}, "quantization_config"},
		{"num_hidden_layers", 0, "num_hidden_layers: is 0 or missing"},
		{"num_hidden_layers", -1, "num_hidden_layers: is -1"},
		{"num_hidden_layers", 1000000000, "num_hidden_layers: is 1000000000"},
		{"num_hidden_layers", 1, "layer_types: lists 2 layers"},
		{"num_attention_heads", 3, "num_key_value_heads: is 2, which does not divide"},
		{"num_key_value_heads", -2, "num_key_value_heads: is -2"},
		{"head_dim", 63, "head_dim: is 63; rotary positions need an even number"},
		{"head_dim", 32, "has shape [256 32]; the configuration asks for [128 32]"},
		{"vocab_size", 100, "has shape [101 32]"},
		{"rms_norm_eps", 0, "rms_norm_eps: is 0"},
		{"layer_types", []string{}, "layer_types: lists 0 layers; num_hidden_layers is 2"},
		{"layer_types", []string{"full_attention"}, "layer_types: lists 1 layers; num_hidden_layers is 2"},
		{"layer_types", []string{"full_attention", "linear_attention"}, "\"linear_attention\" for layer 1"},
		{"layer_types", []string{"full_attention", "sliding_attention"},
			"use_sliding_window: asks for causal"},
		{"is_causal", json.RawMessage("null"), "is_causal: is null; true or false"},
		{"is_causal", 0, "is_causal: is 0; true or false"},
		{"is_causal", true, ""},
		{"partial_rotary_factor", 0.5, "partial_rotary_factor: is 0.5; this architecture rotates whole heads"},
		{"partial_rotary_factor", 1.0, ""},
		{"rope_parameters", map[string]any{"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5},
			"partial_rotary_factor: is 0.5"},
		{"sliding_window", 7, ""}, // use_sliding_window is false
		{"attention_bias", true, "self_attn.q_proj.bias: no such tensor"},
		{"model_type", "qwen2", "self_attn.q_proj.bias: no such tensor"},
		{"model_type", "qwen9", "model_type"},
		{"tie_word_embeddings", true, ""}, // without effect on an embedder
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Open(t, "qwen3-gqa-d64").Dir)); err != nil {
			t.Fatal(err)
		}
		changeJSON(t, dir, configFile, map[string]any{c.key: c.value})
		m, err := Load(dir, dev, Options{Task: Embed, Compute: engine.ComputeF32})
		if m != nil {
			m.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v; want %q", c.key, c.value, err, c.want)
		}
	}
}
