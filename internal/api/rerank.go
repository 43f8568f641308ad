package api

// RerankRequest is the body of POST /v1/rerank and /v2/rerank, with the fields of SIE, Cohere and
// Jina clients.
type RerankRequest struct {
	Model     string // "": not given
	Query     string
	Documents []RerankDocument // at least one
	TopN      int              // results wanted; 0: all
	// ReturnDocuments asks for the documents in the answer.
	ReturnDocuments bool
	Options         Options
	// MaxTokensPerDoc cuts each document to this many of the model's tokens, not counting special
	// tokens; 0: at the model's own limit.
	MaxTokensPerDoc int
	// NoTruncation asks for an error instead of a cut (Jina's truncation: false).
	NoTruncation bool
}

// RerankDocument is a candidate. Text is what the model reads; Object is the sender's object as
// JSON, if it gave one.
type RerankDocument struct {
	Text   string
	Object []byte // nil: the sender gave a string
}

// RerankResult is one candidate of an answer.
type RerankResult struct {
	Index    int     // in the request
	Score    float64 // finite
	Document *RerankDocument
}

// RerankResponse is the answer of /v1/rerank and /v2/rerank, best first. It holds the keys of all
// dialects, so that each client finds its own.
type RerankResponse struct {
	ID         string
	Model      string // as in the request
	Results    []RerankResult
	APIVersion int // Cohere's, 1 or 2
	Tokens     int // that the model read
}
