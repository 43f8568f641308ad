package api

// The requests of text-embeddings-inference, after its openapi.json and router/src/http/types.rs
// (1.9). Its routes name no model.

// TEIOptions holds the fields that TEI's inference requests share.
type TEIOptions struct {
	Truncate   *bool  // nil: cut inputs that are too long, TEI's default; false: an error instead
	Left       bool   // truncation_direction: cut the beginning
	PromptName string // "": none
}

// TEIEmbedRequest is the body of /embed, /embed_all and /embed_sparse. Exactly one of Texts and
// Tokens is set.
type TEIEmbedRequest struct {
	TEIOptions
	Texts      []string
	Tokens     [][]int32
	Normalize  bool // true unless the request says false
	Dimensions int  // 0: not given
}

// TEIRerankRequest is the body of /rerank.
type TEIRerankRequest struct {
	TEIOptions
	Query      string
	Texts      []string // at least one
	RawScores  bool     // no sigmoid
	ReturnText bool
}

// TEIPredictRequest is the body of /predict.
type TEIPredictRequest struct {
	TEIOptions
	Inputs    []TEISequence // at least one
	Batch     bool          // the request holds a list of sequences, so the answer does too
	RawScores bool          // no softmax or sigmoid
}

// TEISequence is a text, or a pair of texts that are read together.
type TEISequence struct {
	Text, Second string
	Pair         bool
}

// TEISimilarityRequest is the body of /similarity.
type TEISimilarityRequest struct {
	TEIOptions
	Source    string
	Sentences []string // at least one
}

// TEITokenizeRequest is the body of /tokenize.
type TEITokenizeRequest struct {
	Texts      []string // at least one
	AddSpecial bool     // true unless the request says false
	PromptName string
}

// TEIDecodeRequest is the body of /decode.
type TEIDecodeRequest struct {
	IDs         [][]int32 // at least one list; each has at least one
	SkipSpecial bool      // true unless the request says false
}

// TEIRank is one entry of a /rerank answer.
type TEIRank struct {
	Index int
	Text  *string // nil: not asked for
	Score float64
}

// TEIPrediction is one label of a /predict answer.
type TEIPrediction struct {
	Score float64
	Label string
}

// Token is one token of a /tokenize answer. Start and Stop are byte offsets in the text; a special
// token has none.
type Token struct {
	ID          int
	Text        string
	Special     bool
	Start, Stop *int
}

// TEIInfo is the answer of /info.
type TEIInfo struct {
	ModelID               string       `json:"model_id"`
	ModelSHA              *string      `json:"model_sha"`
	ModelDType            string       `json:"model_dtype"`
	ServedModelName       string       `json:"served_model_name"`
	ModelType             TEIModelType `json:"model_type"`
	MaxConcurrentRequests int          `json:"max_concurrent_requests"`
	MaxInputLength        int          `json:"max_input_length"`
	MaxBatchTokens        int          `json:"max_batch_tokens"`
	MaxBatchRequests      *int         `json:"max_batch_requests"`
	MaxClientBatchSize    int          `json:"max_client_batch_size"`
	AutoTruncate          bool         `json:"auto_truncate"`
	TokenizationWorkers   int          `json:"tokenization_workers"`
	Version               string       `json:"version"`
	SHA                   *string      `json:"sha"`
	DockerLabel           *string      `json:"docker_label"`
}

// TEIModelType has exactly one field set.
type TEIModelType struct {
	Classifier *TEIClassifier `json:"classifier,omitempty"`
	Embedding  *TEIEmbedding  `json:"embedding,omitempty"`
	Reranker   *TEIClassifier `json:"reranker,omitempty"`
}

// TEIEmbedding tells how a model pools: cls, mean, last_token or splade.
type TEIEmbedding struct {
	Pooling string `json:"pooling"`
}

// TEIClassifier names a head's outputs.
type TEIClassifier struct {
	ID2Label map[string]string `json:"id2label"`
	Label2ID map[string]int    `json:"label2id"`
}
