package server

import (
	"fmt"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/errs"
)

// An answer has one result for each item of its request, or it is an error: never a 200 with items
// missing (weak points 1 and 2). The methods below check that of every answer, whatever went wrong
// on its way.

// whole returns an error unless an answer has a result for each of want items.
func whole[T any](answer T, got, want int) (T, error) {
	if got == want {
		return answer, nil
	}
	var none T
	return none, errs.Internal(fmt.Errorf("the answer has %d results for %d items", got, want))
}

// Encode implements inference.Session.
func (s *checkedSession) Encode(
	w *admit.Work, m compat.Model, r *api.EncodeRequest,
) (*api.EncodeResponse, error) {
	res, err := s.Session.Encode(w, m, r)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res.Items), len(r.Items))
}

// Score implements inference.Session.
func (s *checkedSession) Score(
	w *admit.Work, m compat.Model, r *api.ScoreRequest,
) (*api.ScoreResponse, error) {
	res, err := s.Session.Score(w, m, r)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res.Scores), len(r.Items))
}

// Extract implements inference.Session.
func (s *checkedSession) Extract(
	w *admit.Work, m compat.Model, r *api.ExtractRequest,
) (*api.ExtractResponse, error) {
	res, err := s.Session.Extract(w, m, r)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res.Items), len(r.Items))
}

// Classify implements inference.Session.
func (s *checkedSession) Classify(
	w *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	res, err := s.Session.Classify(w, m, r)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res.Scores), len(r.Items))
}

// Tokenize implements inference.Session.
func (s *checkedSession) Tokenize(
	w *admit.Work, m compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	res, err := s.Session.Tokenize(w, m, texts, addSpecial)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res), len(texts))
}

// Detokenize implements inference.Session.
func (s *checkedSession) Detokenize(
	w *admit.Work, m compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	res, err := s.Session.Detokenize(w, m, ids, skipSpecial)
	if err != nil {
		return nil, err
	}
	return whole(res, len(res), len(ids))
}
