package worker

import "github.com/sie-engine/sie/catalog"

// ScoreRequest asks how relevant texts are to a query.
type ScoreRequest struct {
	Model       string
	Query       string
	Texts       []string // valid UTF-8, at least one
	Instruction *string
	Options     map[string]any // the request's own, laid over the profile's
}

// ScoreResult holds one score per text, in input order.
type ScoreResult struct {
	Model         *catalog.Resolved
	Scores        []float64
	Tokens        int // read by the model, special tokens included
	ContentTokens int // of the caller's own text
	Timings       Timings
}

// ClassifyRequest asks a model with a classification head for the scores of its labels. Exactly one of Texts and Pairs is
// set.
type ClassifyRequest struct {
	Model     string
	Texts     []string
	Pairs     [][2]string // texts that are read together, as a cross-encoder does
	RawScores bool        // the head's logits; else their softmax, or the sigmoid of a single one
	Options   map[string]any
}

// ClassifyResult holds one row of scores per text or pair, in input order; a row is in the order of Labels.
type ClassifyResult struct {
	Labels  []string
	Scores  [][]float64
	Tokens  int
	Timings Timings
}

// Token is one token of a text. Special tokens have no place; the others' is in bytes of the text.
type Token struct {
	ID          int
	Text        string
	Special     bool
	Start, Stop *int
}
