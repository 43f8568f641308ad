package server

import (
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/httpd"
)

// healthz says that the process answers. It stays ok while the server drains, so that nobody kills
// a server that finishes its work.
func (s *Server) healthz(r *httpd.Request, _ string) { r.Plain(200, "ok") }

// unhealthy is the reference's answer to both probes when a GPU does not respond.
const unhealthy = "gpu unhealthy"

// livez says whether all devices still answer.
func (s *Server) livez(r *httpd.Request, _ string) {
	if s.service.Lost() {
		r.Plain(503, unhealthy)
		return
	}
	r.Plain(200, "ok")
}

// readyz says whether requests should be sent to this server.
func (s *Server) readyz(r *httpd.Request, _ string) {
	switch {
	case s.service.Lost():
		r.Plain(503, unhealthy)
	case !s.isReady():
		r.Plain(503, "not ready")
	default:
		r.Plain(200, "ok")
	}
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

// series serves the metrics.
func (s *Server) series(r *httpd.Request, _ string) { s.metrics(r.RequestCtx) }
