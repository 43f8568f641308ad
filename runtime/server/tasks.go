package server

import (
	"context"
	"math"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/worker"
)

// tasks is what the server asks of a worker beyond encode. Texts are checked for size and encoding before; everything that
// depends on the model is the worker's to check. Errors are *errs.Error.
type tasks interface {
	Score(ctx context.Context, r *worker.ScoreRequest) (*worker.Result, error)
	Classify(ctx context.Context, r *worker.ClassifyRequest) (*worker.Result, error)
	Tokenize(ctx context.Context, model string, texts []string, addSpecial bool) ([][]worker.Token, error)
	Detokenize(ctx context.Context, model string, ids [][]int32, skipSpecial bool) ([]string, error)
}

// scorer returns the catalog's entry for a model that scores, or why there is none.
func (s *Server) scorer(model string, describe func(string) (*catalog.Resolved, error)) (*catalog.Resolved, error) {
	m, err := describe(model)
	if err != nil {
		return nil, err
	}
	if !m.Has("score") {
		return m, errs.NoScoring(model)
	}
	return m, nil
}

// ranking returns the indices of scores, best first; equal scores keep their order. Scores that are no numbers have no
// order: they are a 500.
func ranking(model string, scores []float64) ([]int, error) {
	order := make([]int, len(scores))
	for i, v := range scores {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errs.NonFinite(model, "scores")
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order, nil
}

// note says what a request came to.
func note(r *httpd.Request, items, tokens int, outputs []string, t worker.Timings) {
	r.Note.Items, r.Note.Tokens, r.Note.Outputs, r.Note.Timings = items, tokens, outputs, t
}

// served counts and notes one success of items that took tokens.
func (s *Server) served(r *httpd.Request, model, endpoint string, items, tokens int, t worker.Timings) {
	note(r, items, tokens, nil, t)
	s.opt.Metrics.Request(model, endpoint, metrics.Success)
	s.opt.Metrics.Served(model, endpoint, items, tokens, t)
}
