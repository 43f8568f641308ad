package server

import (
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// foreign answers a request of another API.
func (s *Server) foreign(r *httpd.Request, route *compat.Route) {
	begun := s.compat.Begin(route)
	c := call{Call: s.service.Call(route.Endpoint), kind: route.Kind, field: route.Field}
	switch {
	case begun.Named:
		c.full = s.full.refusal(s.service.AllFull())
	case begun.Model != "":
		c.full = s.full.refusal(s.service.Full(begun.Model))
	}
	s.inference(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		out, err := begun.Serve(w, r.Header("Content-Type"), body)
		c.Model = out.ModelID
		if err != nil {
			return nil, err
		}
		for _, h := range out.Headers {
			r.Response.Header.Set(h.Name, h.Value)
		}
		warn(r, out.Ignored)
		r.Note.Outputs = out.Outputs
		r.Reply(api.JSON, out.Body)
		return &out.Outcome, nil
	})
}

// teiInfo answers GET /info.
func (s *Server) teiInfo(r *httpd.Request, _ string) {
	info, err := s.compat.TEIInfo()
	if err != nil {
		r.Fail(dialect.RouteTEI, errs.As(err))
		return
	}
	r.SetContentType(api.ContentTypeJSON)
	r.SetBody(api.AppendTEIInfo(nil, info))
}

// teiHealth answers GET /health with 200, or with TEI's 503. The body is for people, and for SIE
// clients that look for a gateway.
func (s *Server) teiHealth(r *httpd.Request, _ string) {
	r.SetContentType(api.ContentTypeJSON)
	if !s.isReady() {
		r.SetStatusCode(fasthttp.StatusServiceUnavailable)
		r.SetBodyString(`{"error":"unhealthy","error_type":"Unhealthy"}`)
		return
	}
	r.SetBodyString(`{"type":"worker","status":"ok"}`)
}
