package server

import (
	"bytes"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// route is one entry of the routing table. A path ending in "/" takes a model id as the rest.
type route struct {
	method string
	path   string
	serve  func(s *Server, ctx *fasthttp.RequestCtx, model string)
}

// routes is filled in init because the documentation page, one of its entries, is checked against it.
var routes []route

func init() {
	routes = []route{
		{"POST", "/v1/encode/", (*Server).encode},
		{"POST", "/v1/score/", (*Server).score},
		{"POST", "/v1/extract/", (*Server).extract},
		{"POST", "/v1/embeddings", (*Server).embeddings},
		{"POST", "/embeddings", (*Server).embeddings},
		{"POST", "/v1/rerank", (*Server).rerank},
		{"POST", "/v2/rerank", (*Server).rerankV2},
		{"POST", "/embed", (*Server).teiEmbed},
		{"POST", "/rerank", (*Server).teiRerank},
		{"POST", "/predict", (*Server).teiPredict},
		{"POST", "/similarity", (*Server).teiSimilarity},
		{"POST", "/tokenize", (*Server).teiTokenize},
		{"POST", "/decode", (*Server).teiDecode},
		{"POST", "/", (*Server).teiRoot},
		{"GET", "/info", (*Server).teiInfo},
		{"GET", "/health", (*Server).teiHealth},
		{"GET", "/v1/models", (*Server).listModels},
		{"GET", "/v1/models/", (*Server).getModel},
		{"GET", "/healthz", (*Server).healthz},
		{"GET", "/livez", (*Server).livez},
		{"GET", "/readyz", (*Server).readyz},
		{"GET", "/metrics", (*Server).metrics},
		{"GET", "/ws/status", (*Server).status},
		{"GET", "/openapi.json", (*Server).openapi},
		{"GET", "/docs", (*Server).docs},
		{"GET", "/static/page.css", (*Server).css},
		{"GET", "/", (*Server).index},
	}
}

// outOfScope lists the reference's endpoints that this server answers with 501, and below which prefix.
var outOfScope = []string{
	"/v1/generate/", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/", "/v1/estimate",
	"/v1/recommend", "/v1/jobs", "/v1/files", "/v1/batches",
}

// handle is the one entry of every request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer func() {
		if p := recover(); p != nil {
			s.opt.Log.Error("panic in a handler", "panic", p, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			ctx.SetConnectionClose() // nobody knows how much of the body was read
			s.fail(ctx, dialect.RouteNative, errs.Internal(nil))
		}
	}()
	if twoLengths(ctx) {
		ctx.SetConnectionClose()
		s.fail(ctx, dialect.RouteNative, errs.Invalid("headers", "the request has both Content-Length and Transfer-Encoding"))
		return
	}
	// The path is read as it was sent: "//" and ".." must not be tidied up or redirected, they are part of a model id
	// that does not exist.
	path, err := url.PathUnescape(string(ctx.URI().PathOriginal()))
	if err != nil {
		s.fail(ctx, dialect.RouteNative, errs.Invalid("path", "the path is not valid percent-encoding"))
		return
	}
	method := string(ctx.Method())
	if method == "HEAD" {
		method = "GET"
	}
	allowed := ""
	for i := range routes {
		r := &routes[i]
		model, ok := r.match(path)
		if !ok {
			continue
		}
		if r.method != method {
			allowed = r.method
			continue
		}
		if r.method == "GET" {
			s.discard(ctx)
		}
		r.serve(s, ctx, model)
		return
	}
	switch {
	case scopeless(path):
		s.discard(ctx)
		s.fail(ctx, dialect.RouteOpenAI, errs.OutOfScope(path))
	case allowed != "":
		s.discard(ctx)
		ctx.Response.Header.Set("Allow", allowed)
		s.fail(ctx, dialect.RouteNative, errs.WrongMethod())
	default:
		s.discard(ctx)
		s.fail(ctx, dialect.RouteNative, errs.NoRoute())
	}
}

// twoLengths reports whether a request says twice how long its body is. What stands before this server may believe the
// other one, and take part of the body for somebody's next request (RFC 9112, 6.3).
func twoLengths(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	if h.ContentLength() != -1 { // not chunked
		return false
	}
	for line := range bytes.Lines(h.RawHeaders()) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			return true
		}
	}
	return false
}

func (r *route) match(path string) (model string, ok bool) {
	if r.path != "/" && strings.HasSuffix(r.path, "/") {
		model, ok = strings.CutPrefix(path, r.path)
		return model, ok && model != ""
	}
	return "", path == r.path
}

func scopeless(path string) bool {
	for _, p := range outOfScope {
		base := strings.TrimSuffix(p, "/")
		if path == base || strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}

// discard reads away a body that no handler wants, so that the connection stays usable, or closes it.
func (s *Server) discard(ctx *fasthttp.RequestCtx) { s.bodies.drain(ctx) }
