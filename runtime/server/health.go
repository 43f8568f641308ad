package server

import (
	"embed"
	"path"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

//go:embed static
var static embed.FS

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

func (s *Server) openapi(r *httpd.Request, _ string) {
	page(r, "static/openapi.json", "application/json")
}

func (s *Server) docs(r *httpd.Request, _ string) {
	page(r, "static/docs.html", "text/html; charset=utf-8")
}

func (s *Server) index(r *httpd.Request, _ string) {
	page(r, "static/index.html", "text/html; charset=utf-8")
}

// files serves the scripts and the style sheet of the pages.
func (s *Server) files(r *httpd.Request, name string) {
	kind, ok := map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	}[path.Ext(name)]
	if _, err := static.ReadFile("static/" + name); err != nil || !ok {
		r.Fail(dialect.RouteNative, errs.NoRoute())
		return
	}
	page(r, "static/"+name, kind)
}

// policy lets the pages load what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// OpenAPI returns the document that /openapi.json serves.
func OpenAPI() []byte {
	b, err := static.ReadFile("static/openapi.json")
	if err != nil {
		panic("server: openapi.json is not embedded")
	}
	return b
}

func page(r *httpd.Request, name, contentType string) {
	b, err := static.ReadFile(name)
	if err != nil {
		panic("server: " + name + " is not embedded")
	}
	r.SetContentType(contentType)
	r.Response.Header.Set("Cache-Control", "no-cache")
	r.Response.Header.Set("Content-Security-Policy", policy)
	r.Response.Header.Set("X-Content-Type-Options", "nosniff")
	r.SetBody(b)
}
