package arch

import "github.com/sie-engine/sie/runtime/engine"

// ELECTRA (Clark 2020, arXiv:2003.10555) is BERT with embeddings of a different width, which one
// linear brings to the width of the blocks. Published encoders are its discriminators. Generators
// have the head over the vocabulary, which goes through the narrow width again. There is no pooler:
// a text is classified by a separate layer over the first token's state.
var electraNames = &bertFamily{
	prefixes: []string{"", "electra.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names:    encoderTensors,
	project:  "embeddings_project",
	heads: headNames{
		pooler: transformNames{dense: "classifier.dense", act: engine.GELU},
		logits: "classifier.out_proj",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{
				dense: "generator_predictions.dense", act: engine.GELU,
				norm: "generator_predictions.LayerNorm",
			},
			decoder: "generator_lm_head",
			biases:  []string{"generator_lm_head.bias"},
		},
	},
	defaults: bertConfig{
		EmbeddingSize:         128,
		HiddenAct:             "gelu",
		LayerNormEps:          1e-12,
		TypeVocabSize:         2,
		PositionEmbeddingType: "absolute",
	},
}
