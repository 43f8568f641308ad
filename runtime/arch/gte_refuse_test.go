package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// Every key that would change the computation is read, or refused by its name.
func TestBadGteConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	type scaling = map[string]any
	for _, c := range []struct {
		in, key string
		value   any
		parts   []string
	}{
		{"gte-en", "hidden_size", 0, []string{"config.json: hidden_size", "8192"}},
		{"gte-en", "hidden_size", nil, []string{"hidden_size", "missing"}},
		{"gte-en", "num_attention_heads", 3,
			[]string{"num_attention_heads", "does not divide hidden_size 64"}},
		{"gte-en", "num_attention_heads", -1, []string{"num_attention_heads", "256"}},
		{"gte-en", "num_hidden_layers", 1000000000, []string{"num_hidden_layers", "128"}},
		{"gte-en", "intermediate_size", 0, []string{"intermediate_size"}},
		{"gte-en", "vocab_size", 1 << 23, []string{"vocab_size"}},
		{"gte-en", "max_position_embeddings", 0, []string{"max_position_embeddings"}},
		{"gte-en", "type_vocab_size", -1, []string{"type_vocab_size"}},
		{"gte-en", "layer_norm_eps", 0, []string{"layer_norm_eps"}},
		{"gte-en", "layer_norm_type", "rms_norm", []string{"layer_norm_type", "rms_norm", "layer_norm is"}},
		{"gte-en", "hidden_act", "relu", []string{"hidden_act", "relu", "gelu_new"}},
		{"gte-en", "position_embedding_type", "absolute", []string{"position_embedding_type", "absolute"}},
		{"gte-en", "logn_attention_scale", true, []string{"logn_attention_scale", "logarithm"}},
		{"gte-en", "is_decoder", true, []string{"is_decoder"}},
		{"gte-en", "add_cross_attention", true, []string{"add_cross_attention"}},
		{"gte-en", "attn_logit_softcapping", 30, []string{"attn_logit_softcapping", "30"}},
		{"gte-en", "sliding_window", 64, []string{"sliding_window", "64"}},
		{"gte-en", "mlp_bias", true, []string{"mlp_bias"}},
		{"gte-en", "pruned_heads", map[string]any{"0": []int{1}}, []string{"pruned_heads"}},
		{"gte-en", "head_dim", 32, []string{"head_dim", "is 32", "has 64"}},
		{"gte-en", "embedding_size", 32, []string{"embedding_size", "is 32", "has 64"}},
		{"gte-en", "num_key_value_heads", 2, []string{"num_key_value_heads", "is 2", "has 1"}},
		{"gte-en", "partial_rotary_factor", 0.5, []string{"partial_rotary_factor", "0.5", "whole heads"}},
		{"gte-en", "rope_theta", 0.5, []string{"rope_theta", "0.5"}},
		{"gte-en", "rope_scaling", scaling{"type": "ntk"}, []string{"rope_scaling.factor", "missing"}},
		{"gte-en", "rope_scaling", scaling{"type": "ntk", "factor": 0.5},
			[]string{"rope_scaling.factor", "0.5", "1 or more"}},
		{"gte-en", "rope_scaling", scaling{"type": "linear", "factor": 2},
			[]string{"rope_scaling.type", "linear", "ntk alone"}},
		{"gte-en", "rope_scaling", scaling{"type": "longrope", "factor": 2},
			[]string{"rope_scaling.type", "longrope"}},
		{"gte-arctic", "rope_theta", nil, []string{"rope_theta", "is 0"}},
		{"gte-arctic", "rope_scaling", scaling{"type": "yarn", "factor": 2}, []string{"yarn", "ntk alone"}},
		{"gte-saved", "rope_parameters", scaling{"rope_type": "su"},
			[]string{"rope_parameters.rope_type", "su"}},
		// What the checkpoint contradicts.
		{"gte-en", "num_hidden_layers", 2,
			[]string{"encoder.layer.1.attention.qkv_proj.weight", "no such tensor"}},
		{"gte-multilingual", "num_hidden_layers", 1,
			[]string{"new.encoder.layer.1.", "block 1; num_hidden_layers is 1"}},
		{"gte-en", "intermediate_size", 20, []string{"mlp.up_gate_proj.weight", "[48 64]", "[40 64]"}},
		{"gte-en", "pack_qkv", false,
			[]string{"encoder.layer.0.attention.q_proj.weight", "no such tensor"}},
		{"gte-en", "type_vocab_size", 2, []string{"token_type_embeddings.weight", "no such tensor"}},
		{"gte-types", "pack_qkv", true,
			[]string{"encoder.layer.0.attention.qkv_proj.weight", "no such tensor"}},
	} {
		from := golden.Open(t, c.in).Dir
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	// These say what is computed anyway, or have no effect on it.
	for key, value := range map[string]any{
		"head_dim": 64, "embedding_size": 64, "unpad_inputs": true, "use_memory_efficient_attention": true,
		"logn_attention_clip1": true, "layer_norm_type": nil, "pack_qkv": nil, "hidden_dropout_prob": 0.3,
		"rope_scaling": nil, "position_embedding_type": nil,
	} {
		load(t, dev, edit(t, golden.Open(t, "gte-en").Dir, "config.json", map[string]any{key: value}),
			Options{Task: Embed})
	}
}

// Where a file gives no base, transformers' class has another one than the published code.
func TestGteBases(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, theta := range map[string]float64{"gte-multilingual": 10000, "gte-saved": 160000} {
		dir := edit(t, golden.Open(t, name).Dir, "config.json",
			map[string]any{"rope_theta": nil, "rope_parameters": nil})
		m, _ := load(t, dev, dir, Options{Task: Embed})
		if got := m.encoder.(*postNorm).config.rope.theta; got != theta {
			t.Errorf("%s: base %v, want %v", name, got, theta)
		}
	}
}

// A checkpoint without a tensor, or of another architecture, is refused by the tensor's name.
func TestBadGteCheckpointIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "gte-multilingual").Dir
	for without, parts := range map[string][]string{
		"word_embeddings":      {"embeddings.word_embeddings.weight", "another architecture"},
		"1.mlp.down_proj.bias": {"new.encoder.layer.1.mlp.down_proj.bias", "no such tensor"},
		"0.attn_ln.weight":     {"new.encoder.layer.0.attn_ln.weight", "no such tensor"},
		"qkv_proj.bias":        {"new.encoder.layer.0.attention.qkv_proj.bias", "no such tensor"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, weights.SingleFile),
			weightstest.Encode(nil, slices.DeleteFunc(readAll(t, from), func(w weightstest.Tensor) bool {
				return strings.Contains(w.Name, without)
			})...))
		refused(t, dev, dir, without, parts...)
	}
}

// Attention looks at whole texts, and the linears have a gate.
func TestPostNormCost(t *testing.T) {
	m, _ := load(t, open(t, engine.Options{Threads: 1}), golden.Open(t, "gte-multilingual").Dir,
		Options{Task: Embed, Compute: engine.ComputeF32})
	want := Cost{PerToken: 2 * 2 * 32 * (4*32 + 3*40), PerPair: 2 * 4 * 32}
	if got := m.Cost(); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// An adapter may name a linear as transformers does or as the published code does, and not both.
func TestAnAdapterNamesALinearOnce(t *testing.T) {
	c := golden.Open(t, "lora-gte")
	m, _ := load(t, open(t, engine.Options{Threads: 1}), c.Dir, Options{Task: Embed})
	dir := edit(t, filepath.Join(c.Dir, "adapters/attention"), "adapter_config.json",
		map[string]any{"target_modules": []string{"q_proj", "v_proj", "qkv_proj"}})
	both := readAllFrom(t, dir, "adapter_model.safetensors")
	both = append(both, readAllFrom(t,
		filepath.Join(c.Dir, "adapters/published-attention"),
		"adapter_model.safetensors")...)
	write(t, filepath.Join(dir, "adapter_model.safetensors"), weightstest.Encode(nil, both...))
	a, err := m.LoadAdapter(dir)
	if err == nil {
		a.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "by another name") {
		t.Errorf("%v", err)
	}
}
