package arch

import (
	"encoding/json"
	"fmt"
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

// Every change of what is computed shows in the last state of some golden case: these goldens would
// notice a loader that made it.
func TestQwenFaults(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.CPU, Threads: 1})
	for _, f := range []struct {
		name, of string
		change   func(m *qwen)
	}{
		{"no norm of q", "qwen3-gqa-d64", func(m *qwen) { m.blocks[0].qNorm = nil }},
		{"no norm of k", "qwen3-mha-d128-yarn", func(m *qwen) { m.blocks[1].kNorm = nil }},
		{"norms of q and k exchanged", "qwen3-gqa-d64", func(m *qwen) {
			b := &m.blocks[0]
			b.qNorm, b.kNorm = b.kNorm, b.qNorm
		}},
		{"norms of the halves exchanged", "qwen3-both-ways", func(m *qwen) {
			b := &m.blocks[1]
			b.attentionNorm, b.mlpNorm = b.mlpNorm, b.attentionNorm
		}},
		{"no bias", "qwen2-mha-llama3", func(m *qwen) { m.blocks[0].qkvBias = nil }},
		{"no bias behind attention", "qwen3-bias-linear", func(m *qwen) { m.blocks[0].outBias = nil }},
		{"another gate", "qwen2-both-ways", func(m *qwen) { m.config.gate = engine.GEGLU }},
		{"not causal", "qwen2-gqa-dynamic", func(m *qwen) { m.config.bidirectional = true }},
		{"causal", "qwen2-both-ways", func(m *qwen) { m.config.bidirectional = false }},
		{"another epsilon", "qwen3-bias-linear", func(m *qwen) { m.config.RMSNormEps = 1e-6 }},
		{"another rotation", "qwen3-gqa-d64",
			func(m *qwen) { m.rotary.cos, m.rotary.sin = m.rotary.sin, m.rotary.cos }},
		{"blocks exchanged", "qwen2-mha-llama3",
			func(m *qwen) { m.blocks[0], m.blocks[1] = m.blocks[1], m.blocks[0] }},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := golden.Open(t, f.of)
			m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: engine.ComputeF32})
			f.change(m.encoder.(*qwen))
			got := states(t, m, r, goldenBatch(c))
			want, _ := c.Float32(fmt.Sprintf("hidden_%d", m.Layers+1))
			if d := golden.Compare(got[m.Layers+1], want); d.MaxAbs < 1e-2 {
				t.Errorf("the golden data do not notice it: %v", d)
			}
		})
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
		{"layer_types", []string{"full_attention"}, "layer_types: lists 1 layers; num_hidden_layers is 2"},
		{"layer_types", []string{"full_attention", "linear_attention"}, "\"linear_attention\" for layer 1"},
		{"layer_types", []string{"full_attention", "sliding_attention"},
			"use_sliding_window: asks for causal"},
		{"is_causal", json.RawMessage("null"), "is_causal: is null; true or false"},
		{"is_causal", 0, "is_causal: is 0; true or false"},
		{"is_causal", true, ""},
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

// Another base, scaling or trained length of the rotary embeddings shows in the golden data.
func TestQwenAngles(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.CPU, Threads: 1})
	for _, c := range []struct {
		of     string
		change map[string]any
	}{
		{"qwen3-gqa-d64", map[string]any{"rope_type": "default", "rope_theta": 10000.0}},
		{"qwen3-mha-d128-yarn", map[string]any{"rope_type": "default", "rope_theta": 1e6}},
		{"qwen3-mha-d128-yarn", map[string]any{
			"rope_type": "yarn", "rope_theta": 1e6, "factor": 2, "original_max_position_embeddings": 64}},
		{"qwen3-bias-linear", map[string]any{"rope_type": "linear", "rope_theta": 1e4, "factor": 2}},
		{"qwen2-mha-llama3", map[string]any{"rope_type": "llama3", "rope_theta": 5e5, "factor": 4,
			"low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 96}},
	} {
		dir, g := t.TempDir(), golden.Open(t, c.of)
		if err := os.CopyFS(dir, os.DirFS(g.Dir)); err != nil {
			t.Fatal(err)
		}
		changeJSON(t, dir, configFile, map[string]any{"rope_parameters": c.change})
		m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
		want, _ := g.Float32(fmt.Sprintf("hidden_%d", m.Layers+1))
		if d := golden.Compare(states(t, m, r, goldenBatch(g))[m.Layers+1], want); d.MaxAbs < 1e-2 {
			t.Errorf("%s with %v: the golden data do not notice it: %v", c.of, c.change, d)
		}
	}
}
