package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/worker"
)

// fakeTasks scores by counting shared words, so that tests know every answer beforehand.
type fakeTasks struct {
	mu      sync.Mutex
	scored  []*worker.ScoreRequest
	classed []*worker.ClassifyRequest
	err     error         // returned instead of an answer
	held    chan struct{} // if set, Score waits for it to be closed or for its context to end
	scores  []float64     // if set, the scores
	labels  []string
}

func (f *fakeTasks) Score(ctx context.Context, r *worker.ScoreRequest) (*worker.Result, error) {
	f.mu.Lock()
	f.scored = append(f.scored, r)
	f.mu.Unlock()
	if f.held != nil {
		select {
		case <-f.held:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	res := &worker.Result{Tokens: 10 * len(r.Texts), ContentTokens: 7 * len(r.Texts),
		Timings: worker.Timings{Total: 2 * time.Millisecond, Inference: time.Millisecond, BatchWait: time.Microsecond}}
	for _, t := range r.Texts {
		res.Scores = append(res.Scores, shared(r.Query, t))
	}
	if f.scores != nil {
		res.Scores = f.scores
	}
	return res, nil
}

// shared counts the words of b that a has.
func shared(a, b string) (n float64) {
	for _, w := range strings.Fields(b) {
		if strings.Contains(" "+a+" ", " "+w+" ") {
			n++
		}
	}
	return n
}

func (f *fakeTasks) Classify(_ context.Context, r *worker.ClassifyRequest) (*worker.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.classed = append(f.classed, r)
	if f.err != nil {
		return nil, f.err
	}
	res := &worker.Result{Labels: f.labels, Tokens: 5 * (len(r.Texts) + len(r.Pairs))}
	raw := 0.0
	if r.RawScores {
		raw = 100
	}
	for _, p := range r.Pairs {
		row := make([]float64, len(f.labels))
		row[0] = shared(p[0], p[1]) + raw
		res.Classes = append(res.Classes, row)
	}
	for _, t := range r.Texts {
		row := make([]float64, len(f.labels))
		row[len(row)-1] = float64(len(t)) + raw
		res.Classes = append(res.Classes, row)
	}
	return res, nil
}

// Tokenize splits at spaces; ids are lengths.
func (f *fakeTasks) Tokenize(_ context.Context, model string, texts []string, addSpecial bool) ([][]worker.Token, error) {
	out := make([][]worker.Token, len(texts))
	for i, t := range texts {
		if addSpecial {
			out[i] = append(out[i], worker.Token{ID: 101, Text: "[CLS]", Special: true})
		}
		at := 0
		for _, w := range strings.Fields(t) {
			start := at + strings.Index(t[at:], w)
			stop := start + len(w)
			at = stop
			out[i] = append(out[i], worker.Token{ID: len(w), Text: w, Start: &start, Stop: &stop})
		}
	}
	return out, f.err
}

func (f *fakeTasks) Detokenize(_ context.Context, model string, ids [][]int32, skipSpecial bool) ([]string, error) {
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

// reranker is the test catalog's model with a score task.
const reranker = "acme/reranker"

// with puts f behind the server.
func with(f *fakeTasks) func(*Server) { return func(s *Server) { s.tasks = f } }
