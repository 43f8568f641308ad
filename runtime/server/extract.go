package server

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/worker"
)

// extract answers POST /v1/extract/{model}.
func (s *Server) extract(r *httpd.Request, model string) {
	c := call{endpoint: "extract", kind: dialect.RouteExtract}
	if c.full = s.full.answer(s.worker.Full(model)); c.full != nil {
		c.model = model
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeExtract(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.worker.Describe(model)
		if err != nil {
			return "", err
		}
		wr := &worker.ExtractRequest{Model: model, Texts: make([]string, len(req.Items)), Labels: req.Labels, Options: req.Options}
		if !req.OutputSchema.Empty() {
			return m.ID, errs.Invalidf("params.output_schema", "Field 'params.output_schema': model '%s' has no use for it; remove it", model)
		}
		if req.Instruction != nil && *req.Instruction != "" {
			return m.ID, errs.Invalidf("params.instruction", "Field 'params.instruction': model '%s' has no use for it; remove it", model)
		}
		if m.Has("json") { // else the request fails for a better reason
			for i := range req.Items {
				if !req.Items[i].HasText {
					return m.ID, errs.RequiresText(m.Adapter.Class, i)
				}
				wr.Texts[i] = req.Items[i].Text
			}
		}
		res, err := s.worker.Extract(work, wr)
		if err != nil {
			return m.ID, err
		}
		if err := unreadable(r.Caller(), res); err != nil {
			return m.ID, err
		}
		res.Timings.Preprocess += time.Since(start) - res.Timings.Total
		res.Timings.Total = time.Since(start)
		s.writeExtract(r, model, req, res)
		s.served(r, m.ID, "extract", len(res.Found), res.Tokens, res.Timings)
		return m.ID, nil
	})
}

// unreadable is the first item's error, for a client that would take a failed item for one in which nothing was found.
func unreadable(c dialect.Caller, res *worker.Result) error {
	for i := range res.Found {
		if err := res.Found[i].Err; err != nil && !c.ReadsItemErrors() {
			return err
		}
	}
	return nil
}

func (s *Server) writeExtract(r *httpd.Request, model string, req *api.ExtractRequest, res *worker.Result) {
	out := api.ExtractResponse{Model: model, Items: make([]api.ExtractItem, len(res.Found)), Usage: &api.Usage{InputTokens: res.Tokens}}
	for i, x := range res.Found {
		out.Items[i] = api.ExtractItem{ID: api.ItemID(&req.Items[i], i), Entities: x.Entities, Classifications: x.Classes, Error: x.Err}
	}
	s.setHeaders(r, res.Model, res.Timings.Wire(), res.Tokens)
	warn(r, res.Ignored)
	f := api.ResponseFormat(r.Header("Accept"))
	r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendExtract(dst, to, f, &out) })
}
