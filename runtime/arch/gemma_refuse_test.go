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
func TestBadGemmaConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "gemma-window").Dir
	seven := func(kind ...string) []string {
		return append(kind, slices.Repeat([]string{localBlock}, 7)...)[:7]
	}
	object := func(key string, value any) map[string]any { return map[string]any{key: value} }
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"hidden_size", 0, []string{"config.json: hidden_size", "16384"}},
		{"hidden_size", nil, []string{"hidden_size", "missing"}},
		{"num_attention_heads", -1, []string{"num_attention_heads", "is -1"}},
		{"num_attention_heads", 1000000000, []string{"num_attention_heads", "256"}},
		{"num_key_value_heads", 0, []string{"num_key_value_heads", "is 0"}},
		{"num_key_value_heads", -2, []string{"num_key_value_heads", "is -2"}},
		{"num_key_value_heads", 3, []string{"num_key_value_heads", "does not divide num_attention_heads 2"}},
		{"num_hidden_layers", 0, []string{"num_hidden_layers"}},
		{"num_hidden_layers", -7, []string{"num_hidden_layers", "is -7"}},
		{"num_hidden_layers", 1000000000, []string{"num_hidden_layers", "256"}},
		{"intermediate_size", 0, []string{"intermediate_size"}},
		{"head_dim", 63, []string{"head_dim", "even"}},
		{"head_dim", 512, []string{"head_dim", "512", "256"}},
		{"vocab_size", 1 << 23, []string{"vocab_size"}},
		{"max_position_embeddings", 0, []string{"max_position_embeddings"}},
		{"rms_norm_eps", 0, []string{"rms_norm_eps"}},
		{"query_pre_attn_scalar", 0, []string{"query_pre_attn_scalar", "is 0"}},
		{"query_pre_attn_scalar", -64, []string{"query_pre_attn_scalar", "is -64"}},
		{"hidden_activation", "relu", []string{"hidden_activation", "relu", "gelu_pytorch_tanh"}},
		{"use_bidirectional_attention", false, []string{"use_bidirectional_attention", "true"}},
		{"use_bidirectional_attention", nil, []string{"use_bidirectional_attention", "missing"}},
		{"use_bidirectional_attention", "all", []string{"use_bidirectional_attention", "string", "bool"}},
		{"attn_logit_softcapping", 50.0, []string{"attn_logit_softcapping", "50", "not supported"}},
		{"final_logit_softcapping", 30.0, []string{"final_logit_softcapping", "30"}},
		{"quantization_config", object("bits", 4), []string{"quantization_config"}},
		{"mlp_bias", true, []string{"mlp_bias"}},
		{"num_experts", 8, []string{"num_experts"}},
		{"sliding_window", 0, []string{"sliding_window", "is 0"}},
		{"sliding_window", 1, []string{"sliding_window", "is 1"}},
		{"sliding_window", -512, []string{"sliding_window", "is -512"}},
		{"sliding_window", nil, []string{"sliding_window", "null or missing"}},
		{"sliding_window_pattern", 0, []string{"sliding_window_pattern"}},
		{"layer_types", seven()[:6], []string{"layer_types", "6 entries for 7 layers"}},
		{"layer_types", []string{}, []string{"layer_types", "0 entries"}},
		{"layer_types", seven(globalBlock, "chunked_attention"),
			[]string{"layer_types", "block 1", "chunked_attention"}},
		{"rope_theta", 0, []string{"rope_theta", "is 0"}},
		{"rope_local_base_freq", -1, []string{"rope_theta", "is -1"}},
		{"rope_scaling", object("rope_type", "longrope"),
			[]string{"rope_scaling.rope_type", "longrope", "yarn"}},
		{"rope_scaling", object("rope_type", "linear"), []string{"factor", "missing"}},
		{"rope_scaling", map[string]any{"type": "linear", "factor": 2},
			[]string{"rope_scaling.type", "rope_type"}},
		{"rope_parameters", map[string]any{"rope_type": "default", "rope_theta": 5},
			[]string{"rope_parameters.rope_theta", "full_attention and sliding_attention"}},
		{"rope_parameters", object(localBlock, object("rope_type", "su")),
			[]string{"rope_parameters.sliding_attention.rope_type", "su"}},
		{"rope_parameters", object(globalBlock, object("partial_rotary_factor", 0.5)),
			[]string{"partial_rotary_factor", "0.5"}},
		{"rope_parameters", object(globalBlock, 7), []string{"rope_parameters.full_attention", "is 7"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	// These say what is computed anyway, or what has no effect outside of training.
	for key, value := range map[string]any{
		"attention_dropout": 0.1, "attn_logit_softcapping": nil, "_sliding_window_pattern": 6,
		"tie_word_embeddings": false, "rope_parameters": object(globalBlock, nil), "use_cache": true,
	} {
		load(t, dev, edit(t, from, "config.json", map[string]any{key: value}), Options{Task: Embed})
	}
}

// A checkpoint of another shape, with more blocks, or without a tensor is refused by its name.
func TestBadGemmaCheckpointIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "gemma-window").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"num_hidden_layers", 6, []string{"layers.6.", "block 6; num_hidden_layers is 6"}},
		{"num_hidden_layers", 8, []string{"layers.7.input_layernorm.weight", "no such tensor"}},
		{"intermediate_size", 20, []string{"layers.0.mlp.gate_proj.weight", "[28 24]", "[20 24]"}},
		{"vocab_size", 100, []string{"embed_tokens", "[101 24]", "[100 24]"}},
		{"head_dim", 32, []string{"layers.0.self_attn.q_proj.weight", "[128 24]", "[64 24]"}},
		{"attention_bias", true, []string{"layers.0.self_attn.q_proj.bias", "no such tensor"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	for _, missing := range []string{"embed_tokens.weight", "layers.3.post_feedforward_layernorm.weight",
		"layers.0.pre_feedforward_layernorm.weight", "layers.2.self_attn.k_norm.weight", "norm.weight"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, slices.DeleteFunc(
			readAll(t, from), func(w weightstest.Tensor) bool {
				return w.Name == missing || missing == "norm.weight" && strings.HasPrefix(w.Name, "norm.")
			})...))
		refused(t, dev, dir, missing, missing, "no such tensor")
	}
}

// Heads that no published model has behind this encoder are refused.
func TestGemmaHasNoHeads(t *testing.T) {
	dev, dir := open(t, engine.Options{Threads: 1}), golden.Open(t, "gemma-window").Dir
	for _, task := range []Task{Classify, Tag, Splade, Judge} {
		_, err := Load(dir, dev, Options{Task: task, Answers: []int32{1}})
		if err == nil || !strings.Contains(err.Error(), "gemma3_text") ||
			!strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: %v", task, err)
		}
	}
}
