package server

import (
	"context"
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

// scores answers POST /v1/score/{model}. It checks in the reference's order: body, model, task,
// texts.
func (s *Server) scores(r *httpd.Request, model string) {
	c := call{endpoint: "score", kind: dialect.RouteScore}
	if m, err := s.service.Find(model); err == nil && m.Entry().Has("score") {
		if c.full = s.full.answer(m.Room()); c.full != nil {
			c.model = model
		}
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeScore(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.service.Find(model)
		if err != nil {
			return "", err
		}
		res, err := s.score(work, m.Began(start), req)
		if err != nil {
			return m.Entry().ID, err
		}
		f := s.success(r, &res.Outcome, res.Usage.InputTokens)
		r.Response.Header.Set("X-SIE-Units-Content-Input-Tokens", strconv.Itoa(res.Usage.ContentTokens))
		r.Response.Header.Set("X-SIE-Units-Pairs", strconv.Itoa(len(res.Scores)))
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendScore(dst, to, f, res) })
		s.served(r, "score", len(res.Scores), res.Usage.InputTokens, nil, &res.Outcome)
		return res.ModelID, nil
	})
}
