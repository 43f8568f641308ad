package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/runtime/worker"
)

// teiRerank answers POST /rerank. A cross-encoder's score is the sigmoid of its logit whatever its own activation is, or the
// logit itself for raw_scores; a model without such a head scores as on /v1/score.
func (s *Server) teiRerank(r *httpd.Request, _ string) {
	s.tei(r, "rerank", []string{"score"}, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEIRerank(body, s.opt.Limits)
		if err != nil {
			return err
		}
		options, err := teiOptions(&req.TEIOptions)
		if err != nil {
			return err
		}
		m, err := s.scorer(model, s.worker.Describe)
		if err != nil {
			e := *errs.As(err)
			e.Message, e.Status = "model is not a re-ranker model", fasthttp.StatusFailedDependency
			return &e
		}
		scores, tokens, t, err := s.teiScores(work, m, req, options)
		if err != nil {
			return err
		}
		order, err := ranking(model, scores)
		if err != nil {
			return err
		}
		ranks := make([]api.TEIRank, len(order))
		for rank, i := range order {
			ranks[rank] = api.TEIRank{Index: i, Score: scores[i]}
			if req.ReturnText {
				ranks[rank].Text = &req.Texts[i]
			}
		}
		t.Total = time.Since(start)
		s.teiHeaders(r, chars(req.Texts...)+len(req.Texts)*chars(req.Query), tokens, t)
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEIRanks(dst, to, ranks) })
		s.served(r, model, "rerank", len(ranks), tokens, t)
		return nil
	})
}

// teiScores returns one score per text, in order.
func (s *Server) teiScores(ctx context.Context, m *catalog.Resolved, req *api.TEIRerankRequest, options map[string]any) (
	scores []float64, tokens int, t worker.Timings, err error) {
	if !task.ScoresPairs(m) {
		res, err := s.tasks.Score(ctx, &worker.ScoreRequest{Model: m.ID, Query: req.Query, Texts: req.Texts, Field: "texts", Options: options, TruncateLeft: req.Left})
		if err != nil {
			return nil, 0, t, err
		}
		return res.Scores, res.Tokens, res.Timings, nil
	}
	pairs := make([][2]string, len(req.Texts))
	for i, text := range req.Texts {
		pairs[i] = [2]string{req.Query, text}
	}
	res, err := s.tasks.Classify(ctx, &worker.ClassifyRequest{Model: m.ID, Pairs: pairs, Field: "texts", RawScores: req.RawScores, Options: options, TruncateLeft: req.Left})
	if err != nil {
		return nil, 0, t, err
	}
	scores = make([]float64, len(pairs))
	for i, row := range res.Classes {
		if len(row) != 1 {
			e := errs.NoScoring(m.ID)
			e.Message, e.Status = "model is not a re-ranker model", fasthttp.StatusFailedDependency
			return nil, 0, t, e
		}
		scores[i] = row[0]
	}
	return scores, res.Tokens, res.Timings, nil
}

// teiPredict answers POST /predict: every label's score, best first, per sequence.
func (s *Server) teiPredict(r *httpd.Request, _ string) {
	s.tei(r, "predict", []string{"json", "score"}, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEIPredict(body, s.opt.Limits)
		if err != nil {
			return err
		}
		options, err := teiOptions(&req.TEIOptions)
		if err != nil {
			return err
		}
		if _, given := options["is_query"]; given {
			return errs.UnsupportedField("prompt_name", "`prompt_name` is not supported by /predict")
		}
		out := make([][]api.TEIPrediction, len(req.Inputs))
		var tokens, characters int
		var t worker.Timings
		for _, pairs := range []bool{false, true} {
			n, took, err := s.predictSome(work, model, req, options, pairs, out)
			if err != nil {
				return err
			}
			tokens += n
			t.Tokenize, t.BatchWait, t.Inference = t.Tokenize+took.Tokenize, t.BatchWait+took.BatchWait, t.Inference+took.Inference
		}
		for _, q := range req.Inputs {
			characters += chars(q.Text, q.Second)
		}
		t.Total = time.Since(start)
		s.teiHeaders(r, characters, tokens, t)
		batch := req.Batch
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEIPredictions(dst, to, batch, out) })
		s.served(r, model, "predict", len(req.Inputs), tokens, t)
		return nil
	})
}

// predictSome fills out for the inputs that are pairs, or for those that are not.
func (s *Server) predictSome(ctx context.Context, model string, req *api.TEIPredictRequest, options map[string]any, pairs bool,
	out [][]api.TEIPrediction) (tokens int, t worker.Timings, err error) {
	wr := &worker.ClassifyRequest{Model: model, Field: "inputs", RawScores: req.RawScores, Options: options, TruncateLeft: req.Left}
	var at []int
	for i, q := range req.Inputs {
		switch {
		case q.Pair != pairs:
			continue
		case pairs:
			wr.Pairs = append(wr.Pairs, [2]string{q.Text, q.Second})
		default:
			wr.Texts = append(wr.Texts, q.Text)
		}
		at = append(at, i)
	}
	if len(at) == 0 {
		return 0, t, nil
	}
	res, err := s.tasks.Classify(ctx, wr)
	if err != nil {
		return 0, t, err
	}
	for k, row := range res.Classes {
		if _, err := ranking(model, row); err != nil {
			return 0, t, err
		}
		list := make([]api.TEIPrediction, len(row))
		for i, score := range row {
			list[i] = api.TEIPrediction{Score: score, Label: res.Labels[i]}
		}
		slices.SortStableFunc(list, func(a, b api.TEIPrediction) int { return cmp.Compare(b.Score, a.Score) })
		out[at[k]] = list
	}
	return res.Tokens, res.Timings, nil
}
