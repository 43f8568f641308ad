package compat

import (
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
)

// Backend answers native requests, in this process or through a queue. Its methods are safe for
// concurrent use.
//
// A caller looks up the model once per request and passes the Model to the methods below. The
// Work's context bounds waiting: when it ends, its cause is returned. Other errors are *errs.Error
// and name the items with ForeignOptions.Field. Results count as the Work's held bytes, and timings
// from its beginning. The Backend keeps no request, but results may alias a request's memory. Every
// response carries its Outcome.
type Backend interface {
	// Model describes the model of an id without loading it, or returns the 404.
	Model(id string) (Model, error)
	// OpenAIModel does the same as Model for OpenAI-style routes, where "org__name" also names
	// "org/name".
	OpenAIModel(id string) (Model, error)
	// Info describes a model as /v1/models does, or returns the 404.
	Info(id string) (*api.ModelInfo, error)

	Encode(w *admit.Work, m Model, r *api.EncodeRequest) (*api.EncodeResponse, error)
	// Score returns finite scores, best first. For a model that does not score it returns an error.
	Score(w *admit.Work, m Model, r *api.ScoreRequest) (*api.ScoreResponse, error)
	Classify(w *admit.Work, m Model, r *api.ClassifyRequest) (*api.ClassifyResponse, error)

	// Tokenize splits complete texts as the model's tokenizer does, with or without the special
	// tokens of a single text.
	Tokenize(w *admit.Work, m Model, texts []string, addSpecial bool) ([][]api.Token, error)
	// Detokenize turns lists of token ids back into texts.
	Detokenize(w *admit.Work, m Model, ids [][]int32, skipSpecial bool) ([]string, error)
}

// Model describes a model to the routes of other APIs. It is read for every request and cheap to
// copy.
type Model struct {
	ID             string
	Outputs        []string // dense, sparse, multivector, score, json: read-only
	CrossEncoder   bool     // it scores pairs with a classification head, so Classify gives its logits
	Pooling        string   // of its dense vectors; "": mean
	HFID           string   // its repository on the hub; "": none
	Revision       string   // "": the default branch
	MaxBatchTokens int

	Handle any // private to the Backend
}
