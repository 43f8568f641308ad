package arch

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var jinaXLMRCases = []string{"jxlmr-rotary-h2-d32", "jxlmr-absolute-pad5", "jxlmr-absolute-h1-d64"}

// oddJinaXLMRs have heads without a GPU kernel.
var oddJinaXLMRs = []string{"jxlmr-rotary-h3-d14"}

func TestJinaXLMRStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(jinaXLMRCases, oddJinaXLMRs) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestJinaXLMRGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(jinaXLMRCases, oddJinaXLMRs) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

// Every key that would change the computation is read, or refused by its name.
func TestBadJinaXLMRIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	rotary := golden.Open(t, "jxlmr-rotary-h2-d32").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"position_embedding_type", "alibi", []string{"position_embedding_type", "alibi", "and rotary"}},
		{"position_embedding_type", nil, []string{"position_embedding_type", "missing"}},
		{"position_embedding_type", "absolute", []string{"embeddings.position_embeddings.weight", "no such"}},
		{"hidden_act", "relu", []string{"hidden_act", "relu", "gelu_pytorch_tanh"}},
		{"layer_norm_eps", nil, []string{"layer_norm_eps"}},
		{"type_vocab_size", nil, []string{"type_vocab_size", "missing"}},
		{"rotary_emb_base", 0, []string{"rotary_emb_base", "is 0"}},
		{"rotary_emb_base", "x", []string{"rotary_emb_base", "string"}},
		{"rotary_emb_dim", 16, []string{"rotary_emb_dim", "is 16", "whole heads"}},
		{"rotary_emb_scale_base", 512, []string{"rotary_emb_scale_base"}},
		{"rotary_emb_interleaved", true, []string{"rotary_emb_interleaved"}},
		{"last_layer_subset", true, []string{"last_layer_subset"}},
		{"pad_vocab_size_multiple", 8, []string{"pad_vocab_size_multiple", "47"}},
		{"num_attention_heads", 0, []string{"num_attention_heads"}},
		{"num_attention_heads", -3, []string{"num_attention_heads"}},
		{"num_hidden_layers", 1000000000, []string{"num_hidden_layers", "128"}},
		{"num_hidden_layers", 9, []string{"roberta.encoder.layers.", "no such tensor"}},
		{"intermediate_size", 41, []string{"mlp.fc1.weight", "[40 64]", "[41 64]"}},
	} {
		refused(t, dev, edit(t, rotary, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	// These say what is computed anyway.
	for key, value := range map[string]any{
		"rotary_emb_dim": 32, "rotary_emb_scale_base": nil, "pad_vocab_size_multiple": 47,
		"use_flash_attn": false, "fused_mlp": false,
	} {
		load(t, dev, edit(t, rotary, configFile, map[string]any{key: value}), Options{Task: Embed})
	}
}

// A model of 60 learned positions takes texts of 58 tokens, one whose positions rotate texts of 60.
func TestJinaXLMRLengths(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, want := range map[string]int{"classify-jxlmr": 58, "colbert-jxlmr": 60} {
		task := Classify
		if name == "colbert-jxlmr" {
			task = ColBERT
		}
		if m, _ := load(t, dev, golden.Open(t, name).Dir, Options{Task: task}); m.MaxSeqLen != want {
			t.Errorf("%s takes %d tokens; %d expected", name, m.MaxSeqLen, want)
		}
	}
}
