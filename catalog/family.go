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
	FamilySpanExtractor   Family = "span_extractor"   // GLiNER: entities of any labels
	FamilyUnion           Family = "union"            // several span extractors as one
	FamilySchemaExtractor Family = "schema_extractor" // GLiNER2, GLiFormer
	FamilyRelations       Family = "relations"        // GLiREL
	FamilyZeroShot        Family = "zero_shot"        // NLI: any labels, by entailment
	FamilyClassifier      Family = "classifier"       // GLiClass: any labels, beside the text
	FamilySchemas         Family = "schemas"          // GLiNER2, Laya
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

// familyInfo is one row of the table of families: all that configuration knows of a family.
type familyInfo struct {
	name Family
	// outputs are what the family can give.
	outputs []string
	// adapters are the reference's modules and our own, of both generations, without package prefix
	// and ".adapter" suffix.
	adapters []string
	// reason says why this build does not serve the family, without a full stop; "": it does.
	reason string

	// For families that are served:

	// adHoc is the adapter of a model without a model file, and loadtime its load-time options. A
	// union has neither: its members must be named.
	adHoc    string
	loadtime map[string]any
	// means reports whether an adapter of a whole library is of this family, for a model that
	// declares dense, sparse, multivector and score outputs so; nil: it never is.
	means func(dense, sparse, multi, score bool) bool
	// options are the request options that have an effect, apart from those of every family.
	options []string
	folds   bool // folds its multivector by default, as the reference does
	pairs   bool // scores a query and a text by reading them together
	judges  bool // reads a score from the logits of words; see Resolved.Judging
	splade  bool // takes the pooling splade
	// unites is the family of the models of the load-time option members, which answer for the
	// model (see Resolved.Members); FamilyNone: it answers itself.
	unites Family
}

const notYet = "this build serves text embeddings, reranking, classification and entities; "

// ofVectors are the options of every family that gives vectors. muvera and smve are refused by name
// for a model without a multivector.
var ofVectors = []string{
	"instruction", "default_instruction", "query_template", "doc_template", "output_types",
	"output_dtype", "muvera", "smve",
}

func with(options []string, more ...string) []string { return slices.Concat(options, more) }

// families is the one place where configuration knows families. To serve a family, clear its
// reason, complete its row and write its file in runtime/task.
var families = []familyInfo{
	{name: FamilyDense, outputs: []string{outDense}, adapters: []string{
		"bert_flash", "xlm_roberta_flash", "rope_flash", "modernbert_flash", "nomic_flash", "qwen2_flash",
		"pytorch_embedding", "sglang", "sglang.embedding",
	}, adHoc: "sentence_transformer:SentenceTransformerDenseAdapter",
		means:   func(d, s, m, score bool) bool { return d && !s && !m },
		options: with(ofVectors, "normalize", "pooling", "dimensions", "task", "prompt_name")},
	{name: FamilySparse, outputs: []string{outSparse},
		adapters: []string{"splade_flash", gteSparse},
		adHoc:    "splade_flash:Adapter",
		means:    func(d, s, m, score bool) bool { return s && !m },
		splade:   true,
		options:  ofVectors},
	{name: FamilyColBERT, outputs: []string{outMultivector, outScore},
		adapters: []string{"colbert", "colbert_modernbert_flash", "colbert_rotary_flash"},
		adHoc:    "colbert:Adapter",
		means:    func(d, s, m, score bool) bool { return m && !d && !s },
		folds:    true,
		loadtime: map[string]any{"skip_special_tokens": false}, // as such models are trained
		options:  with(ofVectors, "normalize", "dimensions", "query_max_length")},
	{name: FamilyMultiFunction, outputs: []string{outDense, outSparse, outMultivector, outScore},
		adapters: []string{"bge_m3", "bge_m3_flash", "bge_m3_flag"},
		adHoc:    "bge_m3_flash:Adapter",
		means:    func(d, s, m, score bool) bool { return m && (d || s) },
		options:  with(ofVectors, "normalize", "pooling", "dimensions", "score_mode", "score_weights")},
	{name: FamilyCrossEncoder, outputs: []string{outScore}, adapters: []string{
		"cross_encoder", "bert_flash_cross_encoder", "modernbert_flash_cross_encoder",
		"jina_flash_cross_encoder",
	}, adHoc: "cross_encoder:Adapter",
		means:   func(d, s, m, score bool) bool { return score && !d && !s && !m },
		pairs:   true,
		options: []string{"instruction"}},
	{name: FamilyCausalReranker, outputs: []string{outScore},
		adapters: []string{"qwen2_flash_cross_encoder", nativeJudge},
		adHoc:    nativeJudge + ":Adapter",
		judges:   true,
		options:  []string{"instruction"}},
	{name: FamilyPruner, outputs: []string{outScore, outJSON},
		adapters: []string{"stablebridge_pruner"},
		reason:   notYet + "context pruning is not part of it"},
	{name: FamilyImageText, outputs: []string{outDense},
		adapters: []string{"clip", "siglip"},
		reason:   notYet + "image and text embedding is not part of it"},
	{name: FamilyVisualColBERT, outputs: []string{outMultivector, outSparse, outScore},
		adapters: []string{"colpali", "colqwen2", "colqwen3", "colsmol", "nemo_colembed", "topk_embed"},
		reason:   notYet + "visual late interaction is not part of it"},
	{name: FamilyVisualDense, outputs: []string{outDense},
		adapters: []string{"qwen3_vl_embedding"},
		reason:   notYet + "visual embedding is not part of it"},
	{name: FamilyVisualSparse, outputs: []string{outSparse},
		adapters: []string{"st_sparse_vision"},
		reason:   notYet + "visual sparse encoding is not part of it"},
	{name: FamilyVisualReranker, outputs: []string{outScore},
		adapters: []string{"qwen3_vl_reranker"},
		reason:   notYet + "visual reranking is not part of it"},
	{name: FamilySpanExtractor, outputs: []string{outJSON},
		adapters: []string{"gliner", "gliner_bi"},
		adHoc:    "gliner:GLiNERAdapter",
		options: []string{"threshold", "flat_ner", "multi_label", "merge_adjacent_entities",
			"relation_labels", "relation_threshold", "precompute_labels"}},
	{name: FamilyUnion, outputs: []string{outJSON},
		adapters: []string{"gliner_union"},
		unites:   FamilySpanExtractor,
		options: []string{"score_floor", "window_words", "window_overlap", "propagate_label",
			"name_min_letters", "default_labels"}},
	{name: FamilySchemaExtractor, outputs: []string{outJSON, outDense},
		adapters: []string{"gliner2", "gliner2.entities", "gliformer"},
		reason:   notYet + "extraction with schemas is not part of it"},
	{name: FamilyRelations, outputs: []string{outJSON},
		adapters: []string{"glirel"},
		reason:   notYet + "relation extraction is not part of it"},
	{name: FamilyZeroShot, outputs: []string{outJSON},
		adapters: []string{"nli_classification", "nli_classification_flash"},
		adHoc:    "nli_classification:Adapter",
		options:  []string{"hypothesis_template", "multi_label", "top_k", "threshold"}},
	{name: FamilySequenceClassifier, outputs: []string{outJSON},
		adapters: []string{"sequence_classification"},
		adHoc:    "sequence_classification:Adapter",
		options:  []string{"multi_label", "top_k", "threshold"}},
	{name: FamilyTagger, outputs: []string{outJSON},
		adapters: []string{"token_classification"},
		adHoc:    "token_classification:Adapter",
		options:  []string{"threshold"}},
	{name: FamilyClassifier, outputs: []string{outJSON},
		adapters: []string{"gliclass"},
		adHoc:    "gliclass:GLiClassAdapter",
		options: []string{"classification_type", "threshold", "label_groups", "group_encoding", "examples",
			"cuda_graphs"}},
	{name: FamilySchemas, outputs: []string{outJSON},
		adapters: []string{"gliner2.classification", "gliner2.decide", "laya"},
		reason:   notYet + "classification with GLiNER2 and Laya is not part of it"},
	{name: FamilyTokenClassifier, outputs: []string{outJSON},
		adapters: []string{"privacy_filter"},
		reason:   notYet + "token classification is not part of it"},
	{name: FamilyDetector, outputs: []string{outJSON},
		adapters: []string{"grounding_dino", "owlv2", "sam3"},
		reason:   notYet + "object detection is not part of it"},
	{name: FamilyOCR, outputs: []string{outJSON}, adapters: []string{
		"florence2", "donut", "lighton_ocr", "glm_ocr", "paddleocr_vl", "mineru_vl", "sglang_vision_extract",
	}, reason: notYet + "OCR is not part of it"},
	{name: FamilyDocument, outputs: []string{outJSON},
		adapters: []string{"docling"},
		reason:   "document conversion is out of scope for this server"},
	{name: FamilyAudio, outputs: []string{outJSON},
		adapters: []string{"whisper", "parakeet"},
		reason:   "audio is out of scope for this server"},
	{name: FamilyGeneration, outputs: []string{outTokens}, adapters: []string{
		"sglang.generation", "sglang.gemma", "sglang.cuda13", "ctranslate2.generation", "fake",
	}, reason: "text generation is out of scope for this server"},
	{name: FamilyRemote,
		adapters: []string{"remote.openai", "remote.sie"},
		reason:   noForwarding},
}

// likely is what a model is taken for that says nothing of itself.
const likely = FamilyDense

// libraryAdapters are the modules that wrap a whole library or engine. The declared tasks of a
// model decide what it computes.
var libraryAdapters = []string{"sentence_transformer", "candle"}

// noForwarding is why remote-backed models are refused.
const noForwarding = "this server runs models itself and does not forward to other providers"

// info returns the family's row, or nil.
func (f Family) info() *familyInfo {
	i := slices.IndexFunc(families, func(info familyInfo) bool { return info.name == f })
	if i < 0 {
		return nil
	}
	return &families[i]
}

// Served reports whether this build runs the family. If not, reason says why, without a full stop.
func (f Family) Served() (ok bool, reason string) {
	info := f.info()
	if info == nil {
		return false, "the adapter family is unknown"
	}
	return info.reason == "", info.reason
}

// Families lists all families in alphabetical order.
func Families() []Family {
	out := make([]Family, 0, len(families))
	for i := range families {
		out = append(out, families[i].name)
	}
	slices.Sort(out)
	return out
}

// adapterNames lists the modules of all known adapters.
func adapterNames() []string {
	out := slices.Clone(libraryAdapters)
	for i := range families {
		out = append(out, families[i].adapters...)
	}
	return out
}

// gteSparse is the reference's adapter for sparse encoders on GTE.
const gteSparse = "gte_sparse_flash"

// DropsSpecialTokens reports whether sparse rows have no weights for special tokens.
func (r *Resolved) DropsSpecialTokens() bool { return r.Adapter.name() == gteSparse }

// familyOf returns the family of a known adapter, or FamilyNone.
func familyOf(a AdapterPath, t Tasks) Family {
	if a.File {
		return FamilyNone
	}
	name := a.name()
	library := slices.Contains(libraryAdapters, name)
	for i := range families {
		f := &families[i]
		if slices.Contains(f.adapters, name) || library && f.means != nil && f.means(t.Dense != nil,
			t.Sparse != nil, t.Multivector != nil, t.Score) {
			return f.name
		}
	}
	return FamilyNone
}
