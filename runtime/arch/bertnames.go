package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// bertFamily holds the differences between a member of BERT's family and the others.
type bertFamily struct {
	prefixes []string // that saving classes put before the encoder's tensor names
	block    string   // before the names of a block's layers; takes its number
	names    bertTensors
	heads    headNames

	// project is the linear between embeddings and blocks in families that factorise the
	// embeddings; "" in others. Models whose embeddings are as wide as the blocks lack it, unless
	// projectAlways.
	project       string
	projectAlways bool

	embedNorm string // behind the embeddings; "" = BERT's name
	positions string // the position_embedding_type that is computed; "" = absolute

	defaults bertConfig // of keys that a configuration may leave out
	// convert reads a configuration whose keys are not BERT's; nil where they are. keys are their
	// names in messages.
	convert func(dir fs.FS) (bertConfig, error)
	keys    map[string]string

	// positionsAfterPad: the first token has position pad_token_id + 1, so that many fewer tokens
	// fit. A padding token within a text counts like any other here; fairseq's own code, which
	// transformers follows, skips it.
	positionsAfterPad bool
}

// bertTensors holds the names of one block's layers.
type bertTensors struct {
	query, key, value   string
	qkv                 string // one matrix for the three; "" = there are three
	out                 string
	attentionNorm       string
	up, down, blockNorm string
}

// key returns the family's name for one of BERT's keys.
func (f *bertFamily) key(name string) string {
	if own, ok := f.keys[name]; ok {
		return own
	}
	return name
}

// encoderLayer and encoderTensors are BERT's names.
const encoderLayer = "encoder.layer.%d."

var encoderTensors = bertTensors{query: "attention.self.query", key: "attention.self.key",
	value: "attention.self.value", out: "attention.output.dense", attentionNorm: "attention.output.LayerNorm",
	up: "intermediate.dense", down: "output.dense", blockNorm: "output.LayerNorm"}

var bertNames = &bertFamily{
	prefixes: []string{"", "bert.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names:    encoderTensors,
	heads: headNames{
		pooler: transformNames{dense: "pooler.dense", inEncoder: true, act: engine.Tanh},
		logits: "classifier",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{
				dense: "cls.predictions.transform.dense", norm: "cls.predictions.transform.LayerNorm",
			},
			decoder: "cls.predictions.decoder",
			biases:  []string{"cls.predictions.decoder.bias", "cls.predictions.bias"},
		},
	},
	defaults: bertConfig{
		HiddenAct: "gelu", LayerNormEps: 1e-12, TypeVocabSize: 2, PositionEmbeddingType: "absolute",
	},
}

// RoBERTa (Liu 2019, arXiv:1907.11692), XLM-R (Conneau 2019, arXiv:1911.02116) and CamemBERT differ
// from BERT in the first position, and in their tokenizers.
var robertaNames = &bertFamily{
	prefixes: []string{"", "roberta.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names:    encoderTensors,
	heads: headNames{
		pooler: transformNames{dense: "classifier.dense", act: engine.Tanh},
		logits: "classifier.out_proj",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{
				dense: "lm_head.dense", act: engine.GELU, norm: "lm_head.layer_norm",
			},
			decoder: "lm_head.decoder",
			biases:  []string{"lm_head.decoder.bias", "lm_head.bias"},
		},
	},
	defaults: bertConfig{HiddenAct: "gelu", LayerNormEps: 1e-12, TypeVocabSize: 2, PadTokenID: 1,
		PositionEmbeddingType: "absolute"},
	positionsAfterPad: true,
}

// DistilBERT (Sanh 2019, arXiv:1910.01108) has other names and no token types.
var distilbertNames = &bertFamily{
	prefixes: []string{"", "distilbert.", "model.", "0.auto_model."},
	block:    "transformer.layer.%d.",
	names: bertTensors{
		query:         "attention.q_lin",
		key:           "attention.k_lin",
		value:         "attention.v_lin",
		out:           "attention.out_lin",
		attentionNorm: "sa_layer_norm",
		up:            "ffn.lin1",
		down:          "ffn.lin2",
		blockNorm:     "output_layer_norm",
	},
	heads: headNames{
		pooler: transformNames{dense: "pre_classifier", act: engine.ReLU},
		logits: "classifier",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{dense: "vocab_transform", norm: "vocab_layer_norm"},
			decoder:   "vocab_projector",
			biases:    []string{"vocab_projector.bias"},
		},
	},
	convert: readDistilbertConfig,
	keys: map[string]string{
		"hidden_size":         "dim",
		"num_attention_heads": "n_heads",
		"num_hidden_layers":   "n_layers",
		"intermediate_size":   "hidden_dim",
		"hidden_act":          "activation",
	},
}

func readDistilbertConfig(dir fs.FS) (bertConfig, error) {
	c := struct {
		Dim        int64  `json:"dim"`
		Heads      int64  `json:"n_heads"`
		Layers     int64  `json:"n_layers"`
		HiddenDim  int64  `json:"hidden_dim"`
		Activation string `json:"activation"`
		Positions  int64  `json:"max_position_embeddings"`
		VocabSize  int64  `json:"vocab_size"`
		// the same under the names of others, which transformers takes as well
		Hidden *int64 `json:"hidden_size"`
		Split  *int64 `json:"num_attention_heads"`
		Depth  *int64 `json:"num_hidden_layers"`
	}{Activation: "gelu"}
	if err := needJSON(dir, configFile, &c); err != nil {
		return bertConfig{}, err
	}
	for _, same := range []struct {
		key, own string
		given    *int64
		here     *int64
	}{{"hidden_size", "dim", c.Hidden, &c.Dim}, {"num_attention_heads", "n_heads", c.Split, &c.Heads},
		{"num_hidden_layers", "n_layers", c.Depth, &c.Layers}} {
		if same.given == nil {
			continue
		}
		if *same.here != 0 && *same.here != *same.given {
			return bertConfig{}, refuse(configFile, same.key, "is %d, and %s is %d; they say the same",
				*same.given, same.own, *same.here)
		}
		*same.here = *same.given
	}
	// The epsilon is a constant in the model's code. Sinusoidal positions are in the checkpoint
	// like learned ones.
	return bertConfig{
		HiddenSize: c.Dim, Heads: c.Heads, Layers: c.Layers, IntermediateSize: c.HiddenDim,
		HiddenAct: c.Activation, LayerNormEps: 1e-12, MaxPositionEmbeddings: c.Positions,
		VocabSize: c.VocabSize, PositionEmbeddingType: "absolute",
	}, nil
}
