package catalog

import "slices"

// Family names an operation family: the results that a model computes, independent of its
// architecture. The loader reads the architecture (BERT, XLM-R, Qwen3 …) from the weights'
// config.json.
type Family string

// The families. FamilyNone is the zero value: the adapter is not known or cannot run here.
const (
	FamilyNone            Family = ""
	FamilyDense           Family = "dense"            // one vector per text
	FamilySparse          Family = "sparse"           // SPLADE: one weight per vocabulary entry
	FamilyColBERT         Family = "colbert"          // one vector per token, MaxSim
	FamilyMultiFunction   Family = "multi_function"   // BGE-M3: dense, sparse and multivector at once
	FamilyCrossEncoder    Family = "cross_encoder"    // query and document through one encoder
	FamilyCausalReranker  Family = "causal_reranker"  // query and document through a decoder's yes/no logits
	FamilyPruner          Family = "pruner"           // reranking with a token-level keep/drop head
	FamilyImageText       Family = "image_text"       // CLIP, SigLIP: one vector per text or image
	FamilyVisualColBERT   Family = "visual_colbert"   // late interaction over image patches
	FamilyVisualDense     Family = "visual_dense"     // one vector from a vision-language model
	FamilyVisualSparse    Family = "visual_sparse"    // sparse output from a vision-language model
	FamilyVisualReranker  Family = "visual_reranker"  // vision-language relevance judge
	FamilySpanExtractor   Family = "span_extractor"   // GLiNER and similar models: entities
	FamilyRelations       Family = "relations"        // GLiREL
	FamilyZeroShot        Family = "zero_shot"        // NLI: any labels, by entailment
	FamilyClassifier      Family = "classifier"       // GLiClass, Laya
	FamilyTokenClassifier Family = "token_classifier" // privacy filter
	// Heads with fixed labels. The reference has no adapters for them; ours follow its naming.
	FamilySequenceClassifier Family = "sequence_classifier" // one or several labels per text
	FamilyTagger             Family = "tagger"              // one label per token: entities
	FamilyDetector           Family = "detector"            // open-vocabulary boxes
	FamilyOCR                Family = "ocr"                 // image to text or fields
	FamilyDocument           Family = "document"            // document conversion
	FamilyAudio              Family = "audio"               // speech to text
	FamilyGeneration         Family = "generation"          // text generation
	FamilyRemote             Family = "remote"              // proxies to another provider
)

// familyInfo is one row of the support table: the outputs a family can give and the reason why this
// build does not serve it. An empty reason means that the build serves the family.
type familyInfo struct {
	outputs []string
	reason  string
}

const notYet = "this build serves text embeddings, reranking and classification; "

// families defines which families this build serves. To serve a family, clear its reason.
var families = map[Family]familyInfo{
	FamilyDense:              {outputs: []string{outDense}},
	FamilySparse:             {outputs: []string{outSparse}},
	FamilyColBERT:            {outputs: []string{outMultivector, outScore}},
	FamilyMultiFunction:      {outputs: []string{outDense, outSparse, outMultivector, outScore}},
	FamilyCrossEncoder:       {outputs: []string{outScore}},
	FamilyCausalReranker:     {outputs: []string{outScore}, reason: notYet + "decoder reranking is not part of it"},
	FamilyPruner:             {outputs: []string{outScore, outJSON}, reason: notYet + "context pruning is not part of it"},
	FamilyImageText:          {outputs: []string{outDense}, reason: notYet + "image and text embedding is not part of it"},
	FamilyVisualColBERT:      {outputs: []string{outMultivector, outSparse, outScore}, reason: notYet + "visual late interaction is not part of it"},
	FamilyVisualDense:        {outputs: []string{outDense}, reason: notYet + "visual embedding is not part of it"},
	FamilyVisualSparse:       {outputs: []string{outSparse}, reason: notYet + "visual sparse encoding is not part of it"},
	FamilyVisualReranker:     {outputs: []string{outScore}, reason: notYet + "visual reranking is not part of it"},
	FamilySpanExtractor:      {outputs: []string{outJSON, outDense}, reason: notYet + "entity extraction is not part of it"},
	FamilyRelations:          {outputs: []string{outJSON}, reason: notYet + "relation extraction is not part of it"},
	FamilyZeroShot:           {outputs: []string{outJSON}},
	FamilySequenceClassifier: {outputs: []string{outJSON}},
	FamilyTagger:             {outputs: []string{outJSON}},
	FamilyClassifier:         {outputs: []string{outJSON}, reason: notYet + "classification with GLiClass and its kin is not part of it"},
	FamilyTokenClassifier:    {outputs: []string{outJSON}, reason: notYet + "token classification is not part of it"},
	FamilyDetector:           {outputs: []string{outJSON}, reason: notYet + "object detection is not part of it"},
	FamilyOCR:                {outputs: []string{outJSON}, reason: notYet + "OCR is not part of it"},
	FamilyDocument:           {outputs: []string{outJSON}, reason: "document conversion is out of scope for this server"},
	FamilyAudio:              {outputs: []string{outJSON}, reason: "audio is out of scope for this server"},
	FamilyGeneration:         {outputs: []string{outTokens}, reason: "text generation is out of scope for this server"},
	FamilyRemote:             {reason: "this server runs models itself and does not forward to other providers"},
}

// Served reports whether this build runs the family. If not, reason says why, without a full stop.
func (f Family) Served() (ok bool, reason string) {
	info, known := families[f]
	if !known {
		return false, "the adapter family is unknown"
	}
	return info.reason == "", info.reason
}

// Families lists all families in alphabetical order.
func Families() []Family {
	out := make([]Family, 0, len(families))
	for f := range families {
		out = append(out, f)
	}
	slices.Sort(out)
	return out
}

// adapterFamilies maps adapter modules, without package prefix and ".adapter" suffix, to families.
// It has the modules of both generations of the reference and our own. An adapter that wraps a
// whole library or engine maps to familyByTasks, because the tasks of the model decide what it
// computes.
var adapterFamilies = map[string]Family{
	"bert_flash": FamilyDense, "xlm_roberta_flash": FamilyDense, "rope_flash": FamilyDense,
	"modernbert_flash": FamilyDense, "nomic_flash": FamilyDense, "qwen2_flash": FamilyDense,
	"pytorch_embedding": FamilyDense, "sglang": FamilyDense, "sglang.embedding": FamilyDense,
	"sentence_transformer": familyByTasks, "candle": familyByTasks,

	"splade_flash": FamilySparse, "gte_sparse_flash": FamilySparse,
	"colbert": FamilyColBERT, "colbert_modernbert_flash": FamilyColBERT, "colbert_rotary_flash": FamilyColBERT,
	"bge_m3": FamilyMultiFunction, "bge_m3_flash": FamilyMultiFunction, "bge_m3_flag": FamilyMultiFunction,

	"cross_encoder": FamilyCrossEncoder, "bert_flash_cross_encoder": FamilyCrossEncoder,
	"modernbert_flash_cross_encoder": FamilyCrossEncoder, "jina_flash_cross_encoder": FamilyCrossEncoder,
	"qwen2_flash_cross_encoder": FamilyCausalReranker, "native_causal_cross_encoder": FamilyCausalReranker,
	"stablebridge_pruner": FamilyPruner,

	"clip": FamilyImageText, "siglip": FamilyImageText,
	"colpali": FamilyVisualColBERT, "colqwen2": FamilyVisualColBERT, "colqwen3": FamilyVisualColBERT,
	"colsmol": FamilyVisualColBERT, "nemo_colembed": FamilyVisualColBERT, "topk_embed": FamilyVisualColBERT,
	"qwen3_vl_embedding": FamilyVisualDense, "st_sparse_vision": FamilyVisualSparse,
	"qwen3_vl_reranker": FamilyVisualReranker,

	"gliner": FamilySpanExtractor, "gliner_bi": FamilySpanExtractor, "gliner_union": FamilySpanExtractor,
	"gliner2": FamilySpanExtractor, "gliner2.entities": FamilySpanExtractor, "gliformer": FamilySpanExtractor,
	"glirel":   FamilyRelations,
	"gliclass": FamilyClassifier, "nli_classification": FamilyZeroShot, "nli_classification_flash": FamilyZeroShot,
	"sequence_classification": FamilySequenceClassifier, "token_classification": FamilyTagger,
	"gliner2.classification": FamilyClassifier, "gliner2.decide": FamilyClassifier, "laya": FamilyClassifier,
	"privacy_filter": FamilyTokenClassifier,

	"grounding_dino": FamilyDetector, "owlv2": FamilyDetector, "sam3": FamilyDetector,
	"florence2": FamilyOCR, "donut": FamilyOCR, "lighton_ocr": FamilyOCR, "glm_ocr": FamilyOCR,
	"paddleocr_vl": FamilyOCR, "mineru_vl": FamilyOCR, "sglang_vision_extract": FamilyOCR,
	"docling": FamilyDocument,
	"whisper": FamilyAudio, "parakeet": FamilyAudio,

	"sglang.generation": FamilyGeneration, "sglang.gemma": FamilyGeneration, "sglang.cuda13": FamilyGeneration,
	"ctranslate2.generation": FamilyGeneration, "fake": FamilyGeneration,
	"remote.openai": FamilyRemote, "remote.sie": FamilyRemote,
}

// familyByTasks marks adapters whose family follows from the declared tasks. It is never returned
// to callers of the package.
const familyByTasks Family = "by_tasks"

// familyOf returns the family of a known adapter, or FamilyNone.
func familyOf(a AdapterPath, t Tasks) Family {
	if a.File {
		return FamilyNone
	}
	f, known := adapterFamilies[a.name()]
	if !known || f != familyByTasks {
		return f
	}
	dense, sparse, multi := t.Dense != nil, t.Sparse != nil, t.Multivector != nil
	switch {
	case multi && (dense || sparse):
		return FamilyMultiFunction
	case multi:
		return FamilyColBERT
	case sparse:
		return FamilySparse
	case dense:
		return FamilyDense
	case t.Score:
		return FamilyCrossEncoder
	}
	return FamilyNone
}
