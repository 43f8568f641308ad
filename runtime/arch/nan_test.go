package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// A NaN in a matrix, in a gate's half, in a norm, in a table or in a task's adapter is refused by
// the name of the weight, in every architecture that came after BERT's family.
func TestNaNWeightsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, tensors := range map[string][]string{
		"gemma-window": {"embed_tokens.weight", "layers.1.mlp.up_proj.weight",
			"layers.0.post_feedforward_layernorm.weight", "layers.2.self_attn.k_norm.weight"},
		"qwen3-gqa-d64": {"model.layers.0.self_attn.v_proj.weight", "model.norm.weight"},
		"eurobert-gqa":  {"model.layers.1.mlp.gate_proj.weight", "model.embed_tokens.weight"},
		"modernbert-window": {"model.layers.1.mlp.Wi.weight", "model.final_norm.weight",
			"model.layers.3.attn.Wo.weight"},
		"gte-multilingual": {"new.encoder.layer.1.attention.qkv_proj.bias",
			"new.encoder.layer.0.mlp.up_gate_proj.weight", "new.embeddings.token_type_embeddings.weight"},
		"nomic-v15": {"encoder.layers.1.mlp.fc12.weight", "emb_ln.weight"},
		"jina-h2-d32": {"bert.encoder.layer.0.mlp.gated_layers.weight",
			"bert.embeddings.word_embeddings.weight"},
		"jina-code-h3-d11": {"encoder.layer.0.attention.self.layer_norm_k.weight",
			"encoder.layer.0.mlp.down_layer.bias"},
		"qwen2-mha-llama3": {"model.layers.2.self_attn.q_proj.bias"},
		"mpnet-h2-d32": {"mpnet.encoder.relative_attention_bias.weight",
			"mpnet.encoder.layer.0.attention.attn.q.weight"},
		"tasks-jxlmr": {"roberta.encoder.layers.0.mlp.fc1.parametrizations.weight.0.lora_A",
			"roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_B",
			"roberta.embeddings.word_embeddings.parametrizations.weight.0.lora_A",
			"roberta.embeddings.token_type_embeddings.parametrizations.weight.0.lora_B"},
	} {
		from := golden.Open(t, name).Dir
		for _, tensor := range tensors {
			dir, all, found := t.TempDir(), readAll(t, from), false
			if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			for _, w := range all {
				if w.Name == tensor {
					at := len(w.Data) / 4 * 2 // of bf16
					w.Data[at], w.Data[at+1], found = 0xc0, 0x7f, true
				}
			}
			if !found {
				t.Fatalf("%s has no %s", name, tensor)
			}
			write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, all...))
			m, err := Load(dir, dev, Options{Task: Embed})
			if m != nil {
				m.Close()
			}
			block, _, _ := strings.Cut(tensor, ".weight")
			if i := strings.LastIndexByte(block, '.'); strings.Contains(tensor, "_proj") {
				block = block[:i] // weights that are stacked are named by their first
			}
			if err == nil || !strings.Contains(err.Error(), block) {
				t.Errorf("%s: %s: %v", name, tensor, err)
			}
		}
	}
}
