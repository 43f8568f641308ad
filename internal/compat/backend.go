package compat

import (
	"context"

	"github.com/sie-engine/sie/internal/api"
)

// Backend answers native requests: in this process, or through a queue. Its methods are safe for
// concurrent use.
//
// A request looks its model up once, and hands the Model that it got to the methods below. ctx
// bounds waiting: when it ends its cause is returned. Other errors are *errs.Error, and name the
// items as Wishes.Field does. Requests are not kept, but results may alias what they hold. Results
// are counted as held bytes by whoever made ctx. Every response has its Outcome.
type Backend interface {
	// Model describes the model of an id without loading it, or returns the 404.
	Model(id string) (Model, error)
	// OpenAIModel is Model for OpenAI-style routes, where "org__name" also names "org/name".
	OpenAIModel(id string) (Model, error)
	// Info describes a model as /v1/models does, or returns the 404.
	Info(id string) (*api.ModelInfo, error)

	Encode(ctx context.Context, m Model, r *api.EncodeRequest) (*api.EncodeResponse, error)
	// Score returns finite scores, best first. A model that does not score is an error.
	Score(ctx context.Context, m Model, r *api.ScoreRequest) (*api.ScoreResponse, error)
	Classify(ctx context.Context, m Model, r *api.ClassifyRequest) (*api.ClassifyResponse, error)

	// Tokenize splits texts as the model's tokenizer does, whole, with or without the special
	// tokens of one text.
	Tokenize(ctx context.Context, m Model, texts []string, addSpecial bool) ([][]api.Token, error)
	// Detokenize turns lists of token ids back into texts.
	Detokenize(ctx context.Context, m Model, ids [][]int32, skipSpecial bool) ([]string, error)
}

// Model is what the dialects know of a model. It is read for every request, and cheap.
type Model struct {
	ID             string
	Outputs        []string // dense, sparse, multivector, score, json: read-only
	CrossEncoder   bool     // it scores by a classification head over pairs, so Classify gives its logits
	Pooling        string   // of its dense vectors, "" for the usual mean
	HFID           string   // its repository on the hub; "": none
	Revision       string   // "": the default branch
	MaxBatchTokens int

	Handle any // the Backend's own: what it found
}
