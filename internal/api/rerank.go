package api

// RerankRequest is the body of POST /v1/rerank and /v2/rerank: what SIE, Cohere and Jina clients
// send, in one.
type RerankRequest struct {
	Model     string // "": not given
	Query     string
	Documents []RerankDocument // at least one
	TopN      int              // results wanted; 0: all
	// ReturnDocuments asks for the documents in the answer.
	ReturnDocuments bool
	Options         Options
	// MaxTokensPerDoc cuts each document, in tokens of the model, special ones not counted; 0: at
	// the model's own limit.
	MaxTokensPerDoc int
	// NoTruncation asks for an error instead of a cut (Jina's truncation: false).
	NoTruncation bool
}

// RerankDocument is a candidate: what the model reads and, where the sender gave an object, that
// object as JSON.
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

// RerankResponse is the answer of /v1/rerank and /v2/rerank, best first. It is a superset: each
// dialect's clients find their own keys.
type RerankResponse struct {
	ID         string
	Model      string // as asked for
	Results    []RerankResult
	APIVersion int // Cohere's, 1 or 2
	Tokens     int // read by the model
}
