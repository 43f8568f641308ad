package server

import (
	"context"
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/worker"
)

// score answers POST /v1/score/{model}. The order of checks is the reference's: body, model, task, texts.
func (s *Server) score(r *httpd.Request, model string) {
	c := call{endpoint: "score", kind: dialect.RouteScore}
	if m, err := s.scorer(model, s.worker.Describe); err == nil {
		if c.full = s.full.answer(s.worker.Full(model)); c.full != nil {
			c.model = m.ID
		}
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeScore(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.scorer(model, s.worker.Describe)
		if err != nil {
			return known(m), err
		}
		wr := &worker.ScoreRequest{Model: model, Query: req.Query.Text, Texts: make([]string, len(req.Items)),
			Instruction: req.Instruction, Options: req.Options}
		if !req.Query.HasText {
			return m.ID, errs.Invalidf("query", "%s requires text input: Field 'query' has no text", m.Adapter.Class)
		}
		for i := range req.Items {
			if !req.Items[i].HasText {
				return m.ID, errs.RequiresText(m.Adapter.Class, i)
			}
			wr.Texts[i] = req.Items[i].Text
		}
		res, err := s.tasks.Score(work, wr)
		if err != nil {
			return m.ID, err
		}
		order, err := ranking(model, res.Scores)
		if err != nil {
			return m.ID, err
		}
		res.Timings.Preprocess += time.Since(start) - res.Timings.Total
		res.Timings.Total = time.Since(start)
		s.writeScore(r, model, req, res, order)
		s.served(r, m.ID, "score", len(res.Scores), res.Tokens, res.Timings)
		return m.ID, nil
	})
}

func (s *Server) writeScore(r *httpd.Request, model string, req *api.ScoreRequest, res *worker.Result, order []int) {
	out := api.ScoreResponse{Model: model, QueryID: req.Query.ID, HasQuery: req.Query.HasID,
		Scores: make([]api.Score, len(order)),
		Usage:  &api.Usage{InputTokens: res.Tokens, ContentTokens: res.ContentTokens, HasContent: true}}
	for rank, i := range order {
		out.Scores[rank] = api.Score{ItemID: api.ItemID(&req.Items[i], i), Score: res.Scores[i], Rank: rank}
	}
	h := &r.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, r.Caller(), build.Version, res.Timings.Wire()) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(res.Tokens))
	h.Set("X-SIE-Units-Content-Input-Tokens", strconv.Itoa(res.ContentTokens))
	h.Set("X-SIE-Units-Pairs", strconv.Itoa(len(order)))
	warn(r, res.Ignored)
	if res.Model != nil && res.Model.Revision != "" {
		h.Set("X-SIE-Model-Revision", res.Model.Revision)
	}
	f := api.ResponseFormat(r.Header("Accept"))
	r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendScore(dst, to, f, &out) })
}
