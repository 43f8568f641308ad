package server

import (
	"cmp"
	"strconv"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

// scores answers POST /v1/score/{model}. It checks in the reference's order: body, model, task,
// texts.
func (s *Server) scores(r *httpd.Request, id string) {
	c := call{Call: s.service.Call("score"), kind: dialect.RouteScore}
	m, missing := s.find(&c, id)
	if missing == nil && !m.Entry().Has("score") {
		c.full, c.Model = nil, "" // refused for that, and not for its queues
	}
	s.inference(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeScore(r.Header("Content-Type"), body, s.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.Model = m.Entry().ID
		res, err := s.score(m, w, req)
		if err != nil {
			return nil, err
		}
		f := s.success(r, &res.Outcome)
		r.Response.Header.Set("X-SIE-Units-Content-Input-Tokens", strconv.Itoa(res.Usage.ContentTokens))
		r.Response.Header.Set("X-SIE-Units-Pairs", strconv.Itoa(len(res.Scores)))
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendScore(dst, to, f, res) })
		return &res.Outcome, nil
	})
}
