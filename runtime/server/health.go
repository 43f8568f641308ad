package server

import (
	"embed"
	"path"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

//go:embed static
var static embed.FS

// healthz says that the process answers; it stays ok while draining, so that nobody kills a server that finishes its work.
func (s *Server) healthz(ctx *fasthttp.RequestCtx, _ string) { plain(ctx, 200, "ok") }

// unhealthy is what the reference answers when a card does not, to both probes.
const unhealthy = "gpu unhealthy"

// livez says that the devices answer.
func (s *Server) livez(ctx *fasthttp.RequestCtx, _ string) {
	if s.worker.Lost() {
		plain(ctx, 503, unhealthy)
		return
	}
	plain(ctx, 200, "ok")
}

// readyz says that requests should be sent here.
func (s *Server) readyz(ctx *fasthttp.RequestCtx, _ string) {
	switch {
	case s.worker.Lost():
		plain(ctx, 503, unhealthy)
	case !s.isReady():
		plain(ctx, 503, "not ready")
	default:
		plain(ctx, 200, "ok")
	}
}

func (s *Server) isReady() bool { return s.ready.Load() && !s.gate.closed() && !s.worker.Lost() }

func (s *Server) metrics(ctx *fasthttp.RequestCtx, _ string) {
	fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(s.opt.Metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))(ctx)
}

func (s *Server) openapi(ctx *fasthttp.RequestCtx, _ string) {
	page(ctx, "static/openapi.json", "application/json")
}

func (s *Server) docs(ctx *fasthttp.RequestCtx, _ string) {
	page(ctx, "static/docs.html", "text/html; charset=utf-8")
}

func (s *Server) index(ctx *fasthttp.RequestCtx, _ string) {
	page(ctx, "static/index.html", "text/html; charset=utf-8")
}

// files serves the pages' scripts and style.
func (s *Server) files(ctx *fasthttp.RequestCtx, name string) {
	kind, ok := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}[path.Ext(name)]
	if _, err := static.ReadFile("static/" + name); err != nil || !ok {
		s.fail(ctx, dialect.RouteNative, errs.NoRoute())
		return
	}
	page(ctx, "static/"+name, kind)
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

func page(ctx *fasthttp.RequestCtx, name, contentType string) {
	b, err := static.ReadFile(name)
	if err != nil {
		panic("server: " + name + " is not embedded")
	}
	ctx.SetContentType(contentType)
	ctx.Response.Header.Set("Cache-Control", "no-cache")
	ctx.Response.Header.Set("Content-Security-Policy", policy)
	ctx.Response.Header.Set("X-Content-Type-Options", "nosniff")
	ctx.SetBody(b)
}

func plain(ctx *fasthttp.RequestCtx, status int, text string) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(text)
}
