package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/runtime/service"
)

// fakeTasks scores by counting shared words, so that tests know every answer in advance. Everything
// else is done by the service.
type fakeTasks struct {
	mu      sync.Mutex
	scored  []*api.ScoreRequest
	models  []string // that were asked to score or classify
	classed []*api.ClassifyRequest
	err     error         // returned instead of an answer
	held    chan struct{} // if set, Score waits for it to be closed or for its context to end
	scores  []float64     // if set, the scores
	labels  []string
	// prepares makes Score run the service's checks first.
	prepares bool
	ignored  func(*api.ScoreRequest) []string // if set, the options that Score ignores
}

func (f *fakeTasks) Score(w *admit.Work, m compat.Model, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	f.mu.Lock()
	f.scored, f.models = append(f.scored, r), append(f.models, m.ID)
	f.mu.Unlock()
	if f.prepares {
		if _, err := m.Handle.(service.Model).PrepareScore(r); err != nil {
			return nil, err
		}
	}
	if f.held != nil {
		select {
		case <-f.held:
		case <-w.Context().Done():
			return nil, context.Cause(w.Context())
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	scores := f.scores
	if scores == nil {
		for i := range r.Items {
			scores = append(scores, shared(r.Query.Text, r.Items[i].Text))
		}
	}
	order, finite := api.Rank(scores)
	if !finite {
		return nil, errs.NonFinite(m.ID, "scores")
	}
	res := &api.ScoreResponse{
		Model:    m.ID,
		QueryID:  r.Query.ID,
		HasQuery: r.Query.HasID,
		Usage: &api.Usage{
			InputTokens: 10 * len(r.Items), ContentTokens: 7 * len(r.Items), HasContent: true,
		},
		Outcome: api.Outcome{
			ModelID:  m.ID,
			Revision: m.Revision,
			Items:    len(r.Items),
			Tokens:   10 * len(r.Items),
			Timings: api.Timings{
				Total: 2 * time.Millisecond, Inference: time.Millisecond, BatchWait: time.Microsecond,
			},
		},
	}
	if f.ignored != nil {
		res.Ignored = f.ignored(r)
	}
	for rank, i := range order {
		res.Scores = append(res.Scores,
			api.Score{ItemID: api.ItemID(&r.Items[i], i), Index: i, Score: scores[i], Rank: rank})
	}
	return res, nil
}

// shared counts the words of b that also are in a.
func shared(a, b string) (n float64) {
	for _, w := range strings.Fields(b) {
		if strings.Contains(" "+a+" ", " "+w+" ") {
			n++
		}
	}
	return n
}

func (f *fakeTasks) Classify(
	_ *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.classed, f.models = append(f.classed, r), append(f.models, m.ID)
	if f.err != nil {
		return nil, f.err
	}
	res := &api.ClassifyResponse{
		Labels:  f.labels,
		Usage:   &api.Usage{InputTokens: 5 * len(r.Items)},
		Outcome: api.Outcome{ModelID: m.ID},
	}
	raw := 0.0
	if r.RawScores {
		raw = 100
	}
	for i := range r.Items {
		row := make([]float64, len(f.labels))
		if x := r.Items[i].Extra; x != nil {
			row[0] = shared(r.Items[i].Text, *x.Second) + raw
		} else {
			row[len(row)-1] = float64(len(r.Items[i].Text)) + raw
		}
		res.Scores = append(res.Scores, row)
	}
	return res, nil
}

// Tokenize splits at spaces; ids are lengths.
func (f *fakeTasks) Tokenize(
	_ *admit.Work, _ compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	out := make([][]api.Token, len(texts))
	for i, t := range texts {
		if addSpecial {
			out[i] = append(out[i], api.Token{ID: 101, Text: "[CLS]", Special: true})
		}
		at := 0
		for _, w := range strings.Fields(t) {
			start := at + strings.Index(t[at:], w)
			stop := start + len(w)
			at = stop
			out[i] = append(out[i], api.Token{ID: len(w), Text: w, Start: &start, Stop: &stop})
		}
	}
	return out, f.err
}

func (f *fakeTasks) Detokenize(
	_ *admit.Work, _ compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	out := make([]string, len(ids))
	for i, list := range ids {
		for _, id := range list {
			if id == 101 && skipSpecial {
				continue
			}
			out[i] += strings.Repeat("x", int(id))
		}
		if len(list) > 5 {
			return nil, errs.Invalid("ids", "too many")
		}
	}
	return out, f.err
}

// reranker is a model of the test catalog with a score task.
const reranker = "acme/reranker"

// with puts f behind the server.
func with(f *fakeTasks) func(*Server) {
	return func(s *Server) {
		s.backend.wrap = func(real inference.Session) inference.Session { return &fakeSession{real, f} }
	}
}

// fakeSession is a session of the service, with the tasks of a fakeTasks.
type fakeSession struct {
	inference.Session
	tasks *fakeTasks
}

func (s *fakeSession) Score(
	w *admit.Work, m compat.Model, r *api.ScoreRequest,
) (*api.ScoreResponse, error) {
	return s.tasks.Score(w, m, r)
}

func (s *fakeSession) Classify(
	w *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	return s.tasks.Classify(w, m, r)
}

func (s *fakeSession) Tokenize(
	w *admit.Work, m compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	return s.tasks.Tokenize(w, m, texts, addSpecial)
}

func (s *fakeSession) Detokenize(
	w *admit.Work, m compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	return s.tasks.Detokenize(w, m, ids, skipSpecial)
}
