package arch

import (
	"errors"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// What would change the computation and is not computed is refused by file, key and value.
func TestBadGLiClassConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.Ref})
	c := golden.Open(t, "gliclass-modern")
	inner := func(changes map[string]any) map[string]any {
		return map[string]any{"encoder_config": changes}
	}
	for _, x := range []struct {
		changes map[string]any
		field   string
	}{
		{map[string]any{"architecture_type": "bi-encoder"}, "architecture_type"},
		{map[string]any{"architecture_type": "bi-encoder-fused"}, "architecture_type"},
		{map[string]any{"architecture_type": "encoder-decoder"}, "architecture_type"},
		{map[string]any{"architecture_type": "encoder-decoder-cls"}, "architecture_type"},
		{map[string]any{"architecture_type": "decoder-kv"}, "architecture_type"},
		{map[string]any{"scorer_type": "decoder-kv"}, "scorer_type"},
		{map[string]any{"scorer_type": "dot"}, "scorer_type"},
		{map[string]any{"scorer_type": "cross-attn"}, "pooling_strategy"},
		{map[string]any{"pooling_strategy": "pass"}, "pooling_strategy"},
		{map[string]any{"pooling_strategy": "median"}, "pooling_strategy"},
		{map[string]any{"class_token_pooling": "last"}, "class_token_pooling"},
		{map[string]any{"projector_hidden_act": "mish"}, "projector_hidden_act"},
		{map[string]any{"max_labels_alloc": "fixed"}, "max_labels_alloc"},
		{map[string]any{"max_labels_alloc": 25}, "max_labels_alloc"},
		{map[string]any{"max_labels_alloc": nil}, "max_labels_alloc"},
		{map[string]any{"use_calibrator": true}, "use_calibrator"},
		{map[string]any{"encoder_layer_id": 4}, "encoder_layer_id"},
		{map[string]any{"encoder_layer_id": -2}, "encoder_layer_id"},
		{map[string]any{"class_token_index": 88}, "class_token_index"},
		{map[string]any{"text_token_index": 1 << 30}, "text_token_index"},
		{map[string]any{"scorer_type": "cross-attn", "pooling_strategy": "pass", "scorer_num_heads": 5},
			"scorer_num_heads"},
		{map[string]any{"hidden_size": 1 << 20}, "hidden_size"},
		{map[string]any{"hidden_size": 48, "scorer_type": "mlp"}, "hidden_size"},
		{map[string]any{"encoder_config": nil}, "encoder_config"},
		{map[string]any{"encoder_config": []int{1}}, "encoder_config"},
		{inner(map[string]any{"model_type": "gpt2"}), "encoder_config.model_type"},
		{inner(map[string]any{"model_type": "mt5", "d_model": 768}), "encoder.final_layer_norm.weight"},
		{inner(map[string]any{"model_type": "modernbert", "hidden_size": "x"}), "encoder_config"},
		{map[string]any{"use_lstm": true}, "model.lstm.lstm.weight_ih_l0"},
		{map[string]any{"squeeze_layers": true}, "model.layer_wise_attention.squeeze.weight"},
		{map[string]any{"use_segment_embeddings": true}, "model.segment_embeddings.weight"},
		{map[string]any{"scorer_type": "weighted-dot"}, "model.scorer.proj_text.weight"},
		{map[string]any{"scorer_type": "mlp"}, "model.scorer.mlp.0.weight"},
		{map[string]any{"scorer_type": "hopfield"}, "model.scorer.q_proj.weight"},
		{map[string]any{"vocab_size": 89}, "model.encoder_model.embeddings.tok_embeddings.weight"},
	} {
		m, err := Load(changedConfig(t, c.Dir, x.changes), dev, Options{Task: GLiClass})
		if err == nil {
			m.Close()
		}
		var bad *ModelError
		if !errors.As(err, &bad) || bad.Field != x.field || bad.File == "" || bad.Reason == "" {
			t.Errorf("%v: %v, want an error about %s", x.changes, err, x.field)
		}
	}
}
