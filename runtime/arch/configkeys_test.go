package arch

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// meaning is what a key of a configuration means to an encoder.
type meaning struct {
	read    []string       // the computation follows it
	refused map[string]any // with a value that would change the computation
	heads   []string       // only heads follow it
	neutral []string       // the forward pass does not depend on it
}

// Keys of every configuration.
var everyKey = meaning{
	read:    []string{"model_type"},
	refused: map[string]any{"is_encoder_decoder": true},
	heads:   []string{"id2label", "label2id", "problem_type"},
	// chunk_size_feed_forward runs the same rows in parts; dtype is that of the file's numbers.
	neutral: []string{"_name_or_path", "architectures", "bos_token_id", "chunk_size_feed_forward", "dtype",
		"eos_token_id", "initializer_range", "output_attentions", "output_hidden_states", "return_dict",
		"transformers_version"},
}

// What is dropped in training only, and what a decoder keeps between its steps.
var bertKeys = meaning{
	read: []string{"hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps",
		"max_position_embeddings", "num_attention_heads", "num_hidden_layers", "type_vocab_size",
		"vocab_size"},
	refused: map[string]any{"add_cross_attention": true, "is_decoder": true},
	heads:   []string{"tie_word_embeddings"},
	neutral: []string{"attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob",
		"use_cache"},
}

// Where positions begin behind the padding token, it counts.
var robertaKeys = bertKeys.with(meaning{read: []string{"pad_token_id"}})

var qwenKeys = meaning{
	read: []string{"head_dim", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
		"num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_parameters",
		"vocab_size"},
	neutral: []string{"attention_dropout", "pad_token_id", "use_cache"},
}

// The encoder of a model of two parts is computed alone; what its decoder follows is not read.
var t5Keys = meaning{
	read: []string{"d_ff", "d_kv", "d_model", "dense_act_fn", "feed_forward_proj", "head_dim", "hidden_size",
		"is_gated_act", "layer_norm_epsilon", "num_attention_heads", "num_heads", "num_hidden_layers",
		"num_layers", "relative_attention_max_distance", "relative_attention_num_buckets", "vocab_size"},
	refused: map[string]any{"is_decoder": true, "is_encoder_decoder": nil},
	heads:   []string{"tie_word_embeddings"},
	neutral: []string{"classifier_dropout", "decoder_start_token_id", "dropout_rate", "initializer_factor",
		"is_encoder_decoder", "num_decoder_layers", "pad_token_id", "scale_decoder_outputs", "use_cache"},
}

// with joins keys of a class to others.
func (m meaning) with(more meaning) meaning {
	refused := maps.Clone(more.refused)
	if refused == nil {
		refused = make(map[string]any)
	}
	maps.Copy(refused, m.refused)
	return meaning{slices.Concat(m.read, more.read), refused, slices.Concat(m.heads, more.heads),
		slices.Concat(m.neutral, more.neutral)}
}

// configKeys says what each key of transformers' class means, by model_type and a model of it.
var configKeys = map[string]struct {
	model string
	keys  meaning
}{
	"bert":        {"st-mean", robertaKeys},
	"roberta":     {"roberta-pad5-h128", robertaKeys},
	"xlm-roberta": {"xlmr-h64", robertaKeys},
	"camembert":   {"camembert-h32", robertaKeys},
	"electra": {"electra-e64", robertaKeys.with(meaning{
		read: []string{"embedding_size"},
		// of the head for multiple choice, which is not served
		neutral: []string{"summary_activation", "summary_last_dropout", "summary_type",
			"summary_use_proj"}})},
	"albert": {"albert-groups", robertaKeys.with(meaning{
		read:    []string{"embedding_size", "inner_group_num", "num_hidden_groups"},
		neutral: []string{"classifier_dropout_prob"}})},
	"distilbert": {"distilbert-h96", meaning{
		// the names of others are read, too
		read: []string{"activation", "dim", "hidden_dim", "max_position_embeddings", "n_heads", "n_layers",
			"vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers"},
		heads: []string{"tie_word_embeddings"},
		// the table of positions is in the checkpoint, however it was made
		neutral: []string{"attention_dropout", "dropout", "pad_token_id", "qa_dropout", "seq_classif_dropout",
			"sinusoidal_pos_embds"}}},
	"mpnet": {"mpnet-h2-d32", robertaKeys.with(meaning{read: []string{"relative_attention_num_buckets"}})},
	"deberta-v2": {"deberta-own", bertKeys.with(meaning{
		read: []string{"legacy", "max_relative_positions", "pad_token_id", "pooler_hidden_act",
			"pooler_hidden_size", "pos_att_type", "position_biased_input", "relative_attention"},
		neutral: []string{"pooler_dropout"}})},
	"modernbert": {"modernbert-window", meaning{
		read: []string{"attention_bias", "classifier_activation", "classifier_bias", "classifier_pooling",
			"decoder_bias", "hidden_activation", "hidden_size", "intermediate_size", "layer_types",
			"local_attention", "max_position_embeddings", "mlp_bias", "norm_bias", "norm_eps",
			"num_attention_heads", "num_hidden_layers", "rope_parameters", "vocab_size"},
		heads: []string{"tie_word_embeddings"},
		// sparse_prediction leaves rows out of a loss
		neutral: []string{"attention_dropout", "classifier_dropout", "cls_token_id",
			"deterministic_flash_attn", "embedding_dropout", "initializer_cutoff_factor", "mlp_dropout",
			"pad_token_id", "sep_token_id",
			"sparse_pred_ignore_index", "sparse_prediction"}}},
	"gte": {"gte-saved", bertKeys.with(meaning{read: []string{"rope_parameters"},
		neutral: []string{"pad_token_id"}})},
	"nomic_bert": {"nomic-saved", bertKeys.with(meaning{
		read: []string{"head_dim", "rope_parameters"}, neutral: []string{"pad_token_id"}})},
	"qwen2": {"qwen2-gqa-dynamic", qwenKeys.with(meaning{
		read: []string{"layer_types", "max_window_layers", "sliding_window", "tie_word_embeddings",
			"use_sliding_window"}})},
	"qwen3": {"qwen3-gqa-d64", qwenKeys.with(meaning{
		read: []string{"attention_bias", "layer_types", "max_window_layers", "sliding_window",
			"tie_word_embeddings", "use_sliding_window"}})},
	"t5":   {"t5-plain", t5Keys},
	"mt5":  {"t5-mt5", t5Keys},
	"umt5": {"t5-umt5", t5Keys},
	"eurobert": {"eurobert-gqa", qwenKeys.with(meaning{
		read:    []string{"attention_bias", "classifier_pooling", "tie_word_embeddings"},
		refused: map[string]any{"mlp_bias": true},
		neutral: []string{"mask_token_id", "pretraining_tp"}})},
	"gemma3_text": {"gemma-window", qwenKeys.with(meaning{
		read: []string{"attention_bias", "hidden_activation", "layer_types", "query_pre_attn_scalar",
			"sliding_window", "use_bidirectional_attention"},
		heads:   []string{"tie_word_embeddings"},
		refused: map[string]any{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
		// transformers writes the pattern and reads sliding_window_pattern
		neutral: []string{"_sliding_window_pattern"}})},
}

// Every key of transformers' configuration classes is read, refused or known to change nothing. A
// key that is read is refused with a value of a wrong kind; one that changes nothing may have any.
func TestKeysOfTransformersConfigurations(t *testing.T) {
	data, err := os.ReadFile("../../testdata/golden/config-keys/keys.json")
	var theirs struct{ Keys map[string][]string }
	if err == nil {
		err = json.Unmarshal(data, &theirs)
	}
	if err != nil {
		t.Fatal(err)
	}
	dev := open(t, engine.Options{Threads: 1})
	for modelType := range architectures {
		_, known := configKeys[modelType]
		// new is gte's; the others are of code in repositories
		own := modelType != "new" && modelType != "qwen2-bidirectional" &&
			!strings.HasPrefix(modelType, "jina-")
		if n := len(theirs.Keys[modelType]); known != own || known && n == 0 {
			t.Errorf("%s: has a list %v, and %d keys of transformers", modelType, known, n)
		}
	}
	for modelType, c := range configKeys {
		t.Run(modelType, func(t *testing.T) {
			keys := c.keys.with(everyKey)
			dir := edit(t, golden.Open(t, c.model).Dir, configFile, nil)
			asks := func(key string, value any) error {
				defer editIn(t, dir, configFile, map[string]any{key: value})()
				_, err := SizeOf(dir, dev, Options{Task: Embed})
				return err
			}
			says := func(key string, err error) bool {
				return err != nil && strings.Contains(err.Error(), key)
			}
			for _, key := range theirs.Keys[modelType] {
				asRead, asRefused := slices.Contains(keys.read, key), keys.refused[key] != nil
				odd := []error{asks(key, map[string]any{"odd": 1}), asks(key, "odd")}
				switch {
				case asRefused:
					if err := asks(key, keys.refused[key]); !says(key, err) {
						t.Errorf("%s: %v changes the computation: %v", key, keys.refused[key], err)
					}
				case asRead:
					if !says(key, odd[0]) && !says(key, odd[1]) {
						t.Errorf("%s: is not read: %v", key, odd)
					}
				case slices.Contains(keys.heads, key) || slices.Contains(keys.neutral, key):
					if odd[0] != nil || odd[1] != nil {
						t.Errorf("%s: changes nothing, and is refused: %v", key, odd)
					}
				default:
					t.Errorf("%s: nobody says what it means", key)
				}
			}
			// Not fields of a class, and yet any of them may have these.
			for key, value := range foreignValues {
				if key == "is_encoder_decoder" && strings.HasSuffix(modelType, "t5") ||
					key == "is_causal" && strings.HasPrefix(modelType, "qwen") {
					continue
				}
				if err := asks(key, value); !says(key, err) {
					t.Errorf("%s: %v: %v", key, value, err)
				}
			}
			for key, value := range map[string]any{
				"pruned_heads": map[string]any{}, "is_encoder_decoder": false, "is_causal": false,
			} {
				if err := asks(key, value); err != nil {
					t.Errorf("%s: %v is refused: %v", key, value, err)
				}
			}
		})
	}
}

// foreignValues are values that change the computation, of keys that no class need have.
var foreignValues = map[string]any{
	"quantization_config": map[string]any{"quant_method": "awq", "bits": 4},
	"compression_config":  map[string]any{"format": "pack-quantized"},
	"pruned_heads":        map[string]any{"0": []int{1}},
	"is_encoder_decoder":  true, "is_causal": true, "num_experts": 8, "attn_logit_softcapping": 50.0,
}
