package arch

import "github.com/sie-engine/sie/runtime/engine"

// ELECTRA (Clark 2020, arXiv:2003.10555) is BERT with embeddings of a width of their own, which one
// linear brings to that of the blocks. Published encoders are its discriminators; generators have
// the head over the vocabulary, through the narrow width again. A text is classified by a layer of
// its own over the first token's state: there is no pooler.
var electraNames = &bertFamily{
	prefixes: []string{"", "electra.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names:    encoderTensors,
	project:  "embeddings_project",
	heads: headNames{pooler: "classifier.dense", poolerAct: engine.GELU, logits: "classifier.out_proj", tag: "classifier",
		masked: maskedNames{transform: "generator_predictions.dense", act: engine.GELU, norm: "generator_predictions.LayerNorm",
			decoder: "generator_lm_head", biases: []string{"generator_lm_head.bias"}}},
	defaults: bertConfig{EmbeddingSize: 128, HiddenAct: "gelu", LayerNormEps: 1e-12, TypeVocabSize: 2, PositionEmbeddingType: "absolute"},
}
