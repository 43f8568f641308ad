package server

import (
	"cmp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

// extract answers POST /v1/extract/{model}.
func (s *Server) extract(r *httpd.Request, id string) {
	c := call{Call: s.service.Call("extract"), kind: dialect.RouteExtract}
	m, missing := s.find(&c, id)
	s.inference(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeExtract(r.Header("Content-Type"), body, s.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.Model = m.Entry().ID
		res, err := m.Extract(w, req)
		if err == nil {
			err = firstItemError(r.Caller(), res)
		}
		if err != nil {
			return nil, err
		}
		f := s.success(r, &res.Outcome)
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendExtract(dst, to, f, res) })
		return &res.Outcome, nil
	})
}

// firstItemError returns the first item's error if the client does not read item errors. Such a
// client would take a failed item for one in which nothing was found.
func firstItemError(c dialect.Caller, res *api.ExtractResponse) error {
	for i := range res.Items {
		if err := res.Items[i].Error; err != nil && !c.ReadsItemErrors() {
			return err
		}
	}
	return nil
}
