package arch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// countings has the forms of configurations of the architectures that came after BERT's family: a
// golden model in that form, its keys for the numbers of blocks and heads, and other counts.
var countings = map[string]struct {
	model, layers, heads string
	more                 []string
}{
	"modernbert": {"modernbert-window", "num_hidden_layers", "num_attention_heads",
		[]string{"hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings",
			"global_attn_every_n_layers", "local_attention"}},
	"qwen2":    {"qwen2-both-ways", "num_hidden_layers", "num_attention_heads", qwenCounts},
	"qwen3":    {"qwen3-gqa-d64", "num_hidden_layers", "num_attention_heads", decoderCounts},
	"eurobert": {"eurobert-gqa", "num_hidden_layers", "num_attention_heads", qwenCounts},
	"gemma3_text": {"gemma-window", "num_hidden_layers", "num_attention_heads",
		slices.Concat(decoderCounts, []string{"sliding_window"})},
	"gte":              {"gte-saved", "num_hidden_layers", "num_attention_heads", bertCounts},
	"gte, published":   {"gte-multilingual", "num_hidden_layers", "num_attention_heads", bertCounts},
	"nomic":            {"nomic-saved", "num_hidden_layers", "num_attention_heads", bertCounts},
	"nomic, published": {"nomic-v15", "n_layer", "n_head", []string{"n_embd", "vocab_size", "n_positions"}},
	"mpnet":            {"mpnet-h3-d11", "num_hidden_layers", "num_attention_heads", bertCounts},
	"jina-bert":        {"jina-h3-d11", "num_hidden_layers", "num_attention_heads", bertCounts},
	"jina-bert, code":  {"jina-code-h12-d3", "num_hidden_layers", "num_attention_heads", bertCounts},
	"jina-xlm-roberta": {"jxlmr-rotary-h3-d14", "num_hidden_layers", "num_attention_heads", bertCounts},
}

var (
	bertCounts    = []string{"hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"}
	qwenCounts    = slices.Concat(bertCounts, []string{"num_key_value_heads"})
	decoderCounts = slices.Concat(qwenCounts, []string{"head_dim"})
)

// A count of blocks, heads, columns or rows of 0, below 0 or of 10⁹ is refused in any architecture,
// by the file, the key and the value. So is a number of experts, of which there may be 0.
func TestCountsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, c := range countings {
		from := golden.Open(t, c.model).Dir
		for _, key := range append([]string{c.layers, c.heads, "num_experts"}, c.more...) {
			for _, value := range []int{0, -1, 1_000_000_000} {
				if key == "num_experts" && value == 0 {
					continue
				}
				dir := edit(t, from, configFile, map[string]any{key: value})
				refused(t, dev, dir, fmt.Sprintf("%s: %s %d", name, key, value),
					fmt.Sprintf("config.json: %s: is %d", key, value))
			}
		}
	}
}

// A checkpoint with a block that the configuration does not count is refused in every architecture,
// by the name of a tensor of that block.
func TestExtraBlocksOfEveryArchitecture(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, c := range countings {
		if name == "nomic" {
			continue // its names are those of the published form
		}
		one := map[string]any{c.layers: 1, "layer_types": nil}
		dir := edit(t, golden.Open(t, c.model).Dir, configFile, one)
		refused(t, dev, dir, name, ".1.", "is of block 1; "+c.layers+" is 1")
	}
}

// A kind of rotary embeddings that this server does not know is refused in every architecture that
// has them, by its name and with the kinds that are possible.
func TestUnknownRopesOfEveryArchitecture(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, model := range []string{"modernbert-window", "qwen2-both-ways", "qwen3-gqa-d64", "eurobert-gqa",
		"gemma-window", "gte-saved", "nomic-saved"} {
		from := golden.Open(t, model).Dir
		for _, kind := range []string{"longrope", "su", "mrope", "proportional"} {
			keys := map[string]any{"rope_type": kind, "factor": 2}
			dir := edit(t, from, configFile, map[string]any{"rope_scaling": keys, "rope_parameters": nil})
			refused(t, dev, dir, model+" "+kind, "config.json: rope_scaling.rope_type", kind, "yarn")
			field, parameters := "rope_parameters", keys
			if model == "modernbert-window" || model == "gemma-window" {
				field += "." + globalBlock
				parameters = map[string]any{globalBlock: keys}
			}
			dir = edit(t, from, configFile,
				map[string]any{"rope_scaling": nil, "rope_parameters": parameters})
			refused(t, dev, dir, model+" "+kind, "config.json: "+field+".rope_type", kind, "yarn")
		}
	}
}
