package arch

import (
	"encoding/json"
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
func TestBadModernbertConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "modernbert-window").Dir
	kinds := func(kind ...string) []string { return kind }
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"hidden_size", 0, []string{"config.json: hidden_size", "8192"}},
		{"hidden_size", nil, []string{"hidden_size", "missing"}},
		{"num_attention_heads", 3, []string{"num_attention_heads", "does not divide hidden_size 64"}},
		{"num_attention_heads", -1, []string{"num_attention_heads"}},
		{"num_attention_heads", 1000000000, []string{"num_attention_heads", "256"}},
		{"num_hidden_layers", 0, []string{"num_hidden_layers"}},
		{"num_hidden_layers", 1000000000, []string{"num_hidden_layers", "128"}},
		{"intermediate_size", 0, []string{"intermediate_size"}},
		{"vocab_size", 1 << 23, []string{"vocab_size"}},
		{"max_position_embeddings", 0, []string{"max_position_embeddings"}},
		{"norm_eps", 0, []string{"norm_eps"}},
		{"norm_eps", 1.5, []string{"norm_eps"}},
		{"hidden_activation", "relu", []string{"hidden_activation", "relu", "gelu_new"}},
		{"classifier_activation", "mish", []string{"classifier_activation", "mish"}},
		{"classifier_pooling", "max", []string{"classifier_pooling", "max", "cls and mean"}},
		{"global_attn_every_n_layers", 0, []string{"global_attn_every_n_layers"}},
		{"local_attention", 0, []string{"local_attention", "is 0"}},
		{"local_attention", 1, []string{"local_attention", "is 1"}},
		{"local_attention", -1, []string{"local_attention", "is -1"}},
		{"layer_types", kinds(globalBlock), []string{"layer_types", "1 entries for 4 layers"}},
		{"layer_types", kinds(globalBlock, localBlock, "chunked_attention", localBlock),
			[]string{"layer_types", "block 2", "chunked_attention"}},
		{"layer_types", []string{}, []string{"layer_types", "0 entries"}},
		{"head_dim", 64, []string{"head_dim", "is 64", "has 32"}},
		{"num_key_value_heads", 1, []string{"num_key_value_heads", "is 1", "has 2"}},
		{"sliding_window", 10, []string{"sliding_window", "is 10", "has 5"}},
		{"attn_logit_softcapping", 30, []string{"attn_logit_softcapping", "30"}},
		{"is_decoder", true, []string{"is_decoder"}},
		{"add_cross_attention", true, []string{"cross-attention"}},
		{"pruned_heads", map[string]any{"0": []int{1}}, []string{"pruned_heads"}},
		{"rope_theta", 10000, []string{"rope_theta", "no effect", "160000"}},
		{"global_rope_theta", 0.5, []string{"rope_theta", "0.5"}},
		{"global_rope_theta", "10", []string{"global_rope_theta", "string"}},
		{"local_rope_theta", json.RawMessage("null"), []string{"local_rope_theta", "is null", "a number"}},
		{"local_rope_theta", "10", []string{"local_rope_theta", `is "10"`, "a number"}},
		{"rope_scaling", map[string]any{"type": "linear", "factor": 2},
			[]string{"rope_scaling.type", "rope_type"}},
		{"rope_scaling", map[string]any{"rope_type": "longrope"},
			[]string{"rope_scaling.rope_type", "longrope"}},
		{"rope_scaling", map[string]any{"rope_type": "linear"}, []string{"factor", "missing"}},
		{"rope_parameters", map[string]any{"rope_type": "default", "rope_theta": 5},
			[]string{"rope_parameters.rope_t", "full_attention and sliding_attention"}},
		{"rope_parameters", map[string]any{globalBlock: 7},
			[]string{"rope_parameters.full_attention", "is 7", "object"}},
		{"rope_parameters", map[string]any{localBlock: map[string]any{"rope_type": "su"}},
			[]string{"rope_parameters.sliding_attention.rope_type", "su", "yarn"}},
		{"rope_parameters", map[string]any{localBlock: map[string]any{"partial_rotary_factor": 0.5}},
			[]string{"partial_rotary_factor", "0.5"}},
		{"rope_parameters", map[string]any{localBlock: map[string]any{
			"rope_type": "yarn", "factor": 2, "truncate": false}}, []string{"truncate"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	// These say what is computed anyway, or what has no effect outside of training.
	for key, value := range map[string]any{
		"head_dim": 32, "num_key_value_heads": 2, "sliding_window": 5, "embedding_dropout": 0.3,
		"position_embedding_type": "absolute", "rope_scaling": nil, "deterministic_flash_attn": true,
		"rope_parameters": map[string]any{globalBlock: nil}, "reference_compile": true,
	} {
		load(t, dev, edit(t, from, "config.json", map[string]any{key: value}), Options{Task: Embed})
	}
}

// A checkpoint of another shape, with more blocks, with a norm where there is none, or without a
// tensor is refused by the tensor's name.
func TestBadModernbertCheckpointIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "modernbert-window").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"num_hidden_layers", 3, []string{"model.layers.3.", "block 3; num_hidden_layers is 3"}},
		{"num_hidden_layers", 5, []string{"model.layers.4.attn_norm.weight", "no such tensor"}},
		{"intermediate_size", 20, []string{"layers.0.mlp.Wi.weight", "[80 64]", "[40 64]"}},
		{"vocab_size", 100, []string{"tok_embeddings", "[101 64]", "[100 64]"}},
		{"hidden_size", 32, []string{"tok_embeddings"}},
		{"attention_bias", true, []string{"layers.0.attn.Wqkv.bias", "no such tensor"}},
		{"mlp_bias", true, []string{"layers.0.mlp.Wi.bias", "no such tensor"}},
		{"norm_bias", true, []string{"embeddings.norm.bias", "no such tensor"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	for name, c := range map[string]struct {
		change func([]weightstest.Tensor) []weightstest.Tensor
		parts  []string
	}{
		"a norm in block 0": {func(all []weightstest.Tensor) []weightstest.Tensor {
			return append(all, weightstest.Float32("model.layers.0.attn_norm.weight", []int64{64},
				make([]float32, 64)...))
		}, []string{"model.layers.0.attn_norm.weight", "first block"}},
		"another architecture": {func(all []weightstest.Tensor) []weightstest.Tensor {
			return slices.DeleteFunc(all, func(w weightstest.Tensor) bool {
				return strings.Contains(w.Name, "tok_embeddings")
			})
		}, []string{"embeddings.tok_embeddings.weight", "another architecture"}},
		"a missing matrix": {func(all []weightstest.Tensor) []weightstest.Tensor {
			return slices.DeleteFunc(all, func(w weightstest.Tensor) bool {
				return strings.Contains(w.Name, "layers.2.mlp.Wo")
			})
		}, []string{"model.layers.2.mlp.Wo.weight", "no such tensor"}},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, weights.SingleFile),
			weightstest.Encode(nil, c.change(readAll(t, from))...))
		refused(t, dev, dir, name, c.parts...)
	}
}

// readAll returns the tensors of the checkpoint in dir.
func readAll(t *testing.T, dir string) []weightstest.Tensor {
	t.Helper()
	return readAllFrom(t, dir, weights.SingleFile)
}

// readAllFrom returns the tensors of the file in dir.
func readAllFrom(t *testing.T, dir, file string) []weightstest.Tensor {
	t.Helper()
	c, err := weights.OpenFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []weightstest.Tensor
	for _, name := range c.Names() {
		from, _ := c.Tensor(name)
		data := make([]byte, from.Bytes())
		if err := from.ReadAt(data, 0); err != nil {
			t.Fatal(err)
		}
		all = append(all, weightstest.Tensor{Name: name, DType: from.DType, Shape: from.Shape, Data: data})
	}
	return all
}

// The work of a window grows with the length, that of a whole text with its square.
func TestModernbertCost(t *testing.T) {
	m, _ := load(t, open(t, engine.Options{Threads: 1}), golden.Open(t, "modernbert-window").Dir,
		Options{Task: Embed, Compute: engine.ComputeF32})
	want := Cost{PerToken: 4 * 2 * 64 * (4*64 + 3*40), PerPair: 2 * 4 * 64, PerNear: 2 * 4 * 64, Window: 5}
	if got := m.Cost(); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}
