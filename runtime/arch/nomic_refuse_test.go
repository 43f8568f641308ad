package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Every key that would change the computation is read, or refused by its name. Experts are refused
// as such.
func TestBadNomicConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	type keys = map[string]any
	for _, c := range []struct {
		in     string
		change keys
		parts  []string
	}{
		{"nomic-v15", keys{"num_experts": 8, "moe_every_n_layers": 2, "activation_function": "gelu"},
			[]string{"config.json: num_experts", "is 8", "with experts", "v2-moe"}},
		{"nomic-v15", keys{"moe_every_n_layers": 2}, []string{"moe_every_n_layers", "with experts"}},
		{"nomic-v15", keys{"num_experts": "many"}, []string{"num_experts", "many"}},
		{"nomic-v15", keys{"n_embd": 0}, []string{"config.json: n_embd", "8192"}},
		{"nomic-v15", keys{"n_head": 3}, []string{"n_head", "is 3", "does not divide n_embd 32"}},
		{"nomic-v15", keys{"n_head": -1}, []string{"n_head", "256"}},
		{"nomic-v15", keys{"n_layer": 1000000000}, []string{"n_layer", "128"}},
		{"nomic-v15", keys{"n_inner": 0}, []string{"n_inner"}},
		{"nomic-v15", keys{"n_inner": nil}, []string{"n_inner", "missing"}},
		{"nomic-v15", keys{"n_positions": 0}, []string{"n_positions"}},
		{"nomic-v15", keys{"vocab_size": 1 << 23}, []string{"vocab_size"}},
		{"nomic-v15", keys{"pad_vocab_size_multiple": 0}, []string{"pad_vocab_size_multiple", "is 0"}},
		{"nomic-v15", keys{"type_vocab_size": 2000}, []string{"type_vocab_size"}},
		{"nomic-v15", keys{"layer_norm_epsilon": 1.5}, []string{"layer_norm_epsilon", "1.5"}},
		{"nomic-v15", keys{"activation_function": "glu"},
			[]string{"activation_function", "glu", "geglu and swiglu"}},
		{"nomic-v15", keys{"activation_function": "gelu"}, []string{"activation_function", "gelu"}},
		{"nomic-v15", keys{"activation_function": nil}, []string{"activation_function"}},
		{"nomic-v15", keys{"prenorm": true}, []string{"prenorm", "is true"}},
		{"nomic-v15", keys{"parallel_block": true}, []string{"parallel_block"}},
		{"nomic-v15", keys{"parallel_block_tied_norm": true}, []string{"parallel_block_tied_norm"}},
		{"nomic-v15", keys{"causal": true}, []string{"causal"}},
		{"nomic-v15", keys{"use_rms_norm": true}, []string{"use_rms_norm"}},
		{"nomic-v15", keys{"norm_mlp": true}, []string{"norm_mlp"}},
		{"nomic-v15", keys{"scale_attn_weights": false}, []string{"scale_attn_weights", "is false"}},
		{"nomic-v15", keys{"scale_attn_by_inverse_layer_idx": true}, []string{"scale_attn_by_inverse"}},
		{"nomic-v15", keys{"num_heads_kv": 2}, []string{"num_heads_kv", "is 2"}},
		{"nomic-v15", keys{"rotary_emb_interleaved": true}, []string{"rotary_emb_interleaved"}},
		{"nomic-v15", keys{"rotary_emb_scale_base": 512}, []string{"rotary_emb_scale_base", "512"}},
		{"nomic-v15", keys{"rotary_head_dim": true}, []string{"rotary_head_dim"}},
		{"nomic-v15", keys{"rotary_emb_fraction": nil}, []string{"rotary_emb_fraction", "missing"}},
		{"nomic-v15", keys{"rotary_emb_fraction": 0.5}, []string{"rotary_emb_fraction", "0.5"}},
		{"nomic-v15", keys{"rotary_emb_base": 0.5}, []string{"rotary_emb_base", "0.5"}},
		{"nomic-v15", keys{"rotary_scaling_factor": -1}, []string{"rotary_scaling_factor", "-1"}},
		{"nomic-biases", keys{"max_trained_positions": 0}, []string{"max_trained_positions", "is 0"}},
		// Both forms in one file.
		{"nomic-v15", keys{"hidden_size": 64}, []string{"hidden_size", "is 64", "n_embd is 32"}},
		{"nomic-v15", keys{"rope_theta": 10000.0}, []string{"rope_theta", "rotary_emb_base is 1000"}},
		{"nomic-v15", keys{"layer_norm_eps": 1e-5}, []string{"layer_norm_eps", "0.00001"}},
		// The form of transformers.
		{"nomic-saved", keys{"hidden_size": nil}, []string{"config.json: hidden_size", "missing"}},
		{"nomic-saved", keys{"hidden_act": "relu"}, []string{"hidden_act", "relu", "silu"}},
		{"nomic-saved", keys{"head_dim": 32}, []string{"head_dim", "is 32"}},
		{"nomic-saved", keys{"layer_norm_eps": 0}, []string{"layer_norm_eps"}},
		{"nomic-saved", keys{"rope_parameters": keys{"rope_type": "default", "partial_rotary_factor": 0.5}},
			[]string{"partial_rotary_factor", "0.5"}},
		{"nomic-saved", keys{"rope_parameters": keys{"rope_type": "longrope"}}, []string{"longrope"}},
		// What the checkpoint contradicts.
		{"nomic-v15", keys{"n_layer": 1}, []string{"encoder.layers.1.", "block 1; n_layer is 1"}},
		{"nomic-v15", keys{"n_layer": 3}, []string{"encoder.layers.2.attn.Wqkv.weight", "no such tensor"}},
		{"nomic-v15", keys{"n_inner": 257}, []string{"mlp.fc12.weight", "[256 32]", "[512 32]"}},
		{"nomic-v15", keys{"pad_vocab_size_multiple": 1},
			[]string{"word_embeddings.weight", "[128 32]", "[101 32]"}},
		{"nomic-v15", keys{"qkv_proj_bias": true}, []string{"attn.Wqkv.bias", "no such tensor"}},
		{"nomic-v15", keys{"mlp_fc1_bias": true}, []string{"mlp.fc12.bias", "no such tensor"}},
		{"nomic-v15", keys{"mlp_fc2_bias": nil}, []string{"mlp.fc2.bias", "no such tensor"}},
	} {
		refused(t, dev, edit(t, golden.Open(t, c.in).Dir, "config.json", c.change), c.in, c.parts...)
	}
	// These say what is computed anyway, or have no effect on it.
	for _, change := range []keys{{"num_experts": 0, "moe_every_n_layers": 0}, {"hidden_size": 32},
		{"max_position_embeddings": 100, "rope_theta": 1000.0}, {"num_heads_kv": 1}, {"resid_pdrop": 0.5},
		{"rotary_scaling_factor": 0}, {"reorder_and_upcast_attn": false}, {"layer_norm_eps": nil}} {
		load(t, dev, edit(t, golden.Open(t, "nomic-v15").Dir, "config.json", change), Options{Task: Embed})
	}
}

// Texts may be as long as the file says, whether or not their angles depend on the length.
func TestNomicLengths(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, want := range map[string]int{"nomic-v15": 160, "nomic-biases": 260, "nomic-saved": 100,
		"nomic-stretched": 260, "nomic-long": 8192} {
		m, _ := load(t, dev, golden.Open(t, name).Dir, Options{Task: Embed})
		if m.MaxSeqLen != want {
			t.Errorf("%s: %d tokens, want %d", name, m.MaxSeqLen, want)
		}
	}
}
