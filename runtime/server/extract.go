package server

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

// extract answers POST /v1/extract/{model}.
func (s *Server) extract(r *httpd.Request, model string) {
	c := call{endpoint: "extract", kind: dialect.RouteExtract}
	if c.full = s.full.answer(s.service.Full(model)); c.full != nil {
		c.model = model
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeExtract(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.service.Find(model)
		if err != nil {
			return "", err
		}
		res, err := m.Began(start).Extract(work, req)
		if err == nil {
			err = unreadable(r.Caller(), res)
		}
		if err != nil {
			return m.Entry().ID, err
		}
		f := s.success(r, &res.Outcome, res.Usage.InputTokens)
		items := len(res.Items)
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendExtract(dst, to, f, res) })
		s.served(r, "extract", items, res.Usage.InputTokens, nil, &res.Outcome)
		return res.ModelID, nil
	})
}

// unreadable returns the first item's error if the client does not read item errors. Such a client
// would take a failed item for one in which nothing was found.
func unreadable(c dialect.Caller, res *api.ExtractResponse) error {
	for i := range res.Items {
		if err := res.Items[i].Error; err != nil && !c.ReadsItemErrors() {
			return err
		}
	}
	return nil
}
