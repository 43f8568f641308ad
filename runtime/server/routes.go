package server

import (
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
	kind   dialect.RouteKind // the envelope of errors before the handler's own
	span   string            // of the trace; "": none
	// open routes need no API key. Health and metrics are read by machines that have none: /metrics names the models that
	// are in use and counts their requests and tokens, and says nothing of texts, keys or clients. The pages are the same for
	// everybody, and ask for a key themselves.
	open bool
}

// routes is filled in init because the documentation page, one of its entries, is checked against it.
var routes []route

func init() {
	routes = []route{
		{method: "POST", path: "/v1/encode/", serve: (*Server).encode, kind: dialect.RouteEncode, span: "encode"},
		{method: "POST", path: "/v1/score/", serve: (*Server).score, kind: dialect.RouteScore, span: "score"},
		{method: "POST", path: "/v1/extract/", serve: (*Server).extract, kind: dialect.RouteExtract, span: "extract"},
		{method: "POST", path: "/v1/embeddings", serve: (*Server).embeddings, kind: dialect.RouteOpenAI, span: "openai_embeddings"},
		{method: "POST", path: "/embeddings", serve: (*Server).embeddings, kind: dialect.RouteOpenAI, span: "openai_embeddings"},
		{method: "POST", path: "/v1/rerank", serve: (*Server).rerank, kind: dialect.RouteRerank, span: "rerank"},
		{method: "POST", path: "/v2/rerank", serve: (*Server).rerankV2, kind: dialect.RouteCohere, span: "rerank"},
		{method: "POST", path: "/embed", serve: (*Server).teiEmbed, kind: dialect.RouteTEI, span: "tei_embed"},
		{method: "POST", path: "/embed_sparse", serve: (*Server).teiSparse, kind: dialect.RouteTEI, span: "tei_embed_sparse"},
		{method: "POST", path: "/embed_all", serve: (*Server).teiAll, kind: dialect.RouteTEI, span: "tei_embed_all"},
		{method: "POST", path: "/rerank", serve: (*Server).teiRerank, kind: dialect.RouteTEI, span: "tei_rerank"},
		{method: "POST", path: "/predict", serve: (*Server).teiPredict, kind: dialect.RouteTEI, span: "tei_predict"},
		{method: "POST", path: "/similarity", serve: (*Server).teiSimilarity, kind: dialect.RouteTEI, span: "tei_similarity"},
		{method: "POST", path: "/tokenize", serve: (*Server).teiTokenize, kind: dialect.RouteTEI, span: "tei_tokenize"},
		{method: "POST", path: "/decode", serve: (*Server).teiDecode, kind: dialect.RouteTEI, span: "tei_decode"},
		{method: "POST", path: "/", serve: (*Server).teiRoot, kind: dialect.RouteTEI, span: "tei"},
		{method: "GET", path: "/info", serve: (*Server).teiInfo, kind: dialect.RouteTEI},
		{method: "GET", path: "/health", serve: (*Server).teiHealth, kind: dialect.RouteTEI, open: true},
		{method: "GET", path: "/v1/models", serve: (*Server).listModels},
		{method: "GET", path: "/v1/models/", serve: (*Server).getModel},
		{method: "GET", path: "/healthz", serve: (*Server).healthz, open: true},
		{method: "GET", path: "/livez", serve: (*Server).livez, open: true},
		{method: "GET", path: "/readyz", serve: (*Server).readyz, open: true},
		{method: "GET", path: "/metrics", serve: (*Server).metrics, open: true},
		{method: "GET", path: "/ws/status", serve: (*Server).status},
		{method: "GET", path: "/openapi.json", serve: (*Server).openapi, open: true},
		{method: "GET", path: "/docs", serve: (*Server).docs, open: true},
		{method: "GET", path: "/static/", serve: (*Server).files, open: true},
		{method: "GET", path: "/", serve: (*Server).index, open: true},
	}
}

// outOfScope lists the reference's endpoints that this server answers with 501, and below which prefix.
var outOfScope = []string{
	"/v1/generate/", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/", "/v1/estimate",
	"/v1/recommend", "/v1/jobs", "/v1/files", "/v1/batches",
}

// handle is the one entry of every request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	v := s.arrive(ctx)
	defer s.depart(ctx, v)
	defer func() {
		if p := recover(); p != nil {
			s.opt.Log.Error("panic in a handler", "panic", p, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			s.cors(ctx)
			ctx.SetConnectionClose() // nobody knows how much of the body was read
			s.fail(ctx, dialect.RouteNative, errs.Internal(nil))
		}
	}()
	if s.cors(ctx) {
		s.discard(ctx)
		return
	}
	if err := checkFraming(&ctx.Request.Header); err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, dialect.RouteNative, err)
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
		s.begin(ctx, v, r.span)
		if !r.open && !s.admit(ctx, v, r.kind) {
			return
		}
		r.serve(s, ctx, model)
		return
	}
	if !s.admit(ctx, v, dialect.RouteNative) {
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

// admit reports whether a request may go on; else it is answered. What there is behind a route is not said to those who
// have no key.
func (s *Server) admit(ctx *fasthttp.RequestCtx, v *visit, kind dialect.RouteKind) bool {
	n, err := s.keyed(ctx)
	if err == nil {
		v.key = n
		return true
	}
	s.discard(ctx)
	s.fail(ctx, kind, err)
	return false
}

// keyed returns the number of a request's key, 0 where none is asked for, or the 401.
func (s *Server) keyed(ctx *fasthttp.RequestCtx) (int, *errs.Error) {
	if s.opt.Keys == nil {
		return 0, nil
	}
	return s.opt.Keys.admit(ctx)
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

// discard reads away a body that no handler wants, so that the connection stays usable, or closes it
// where that would take long.
func (s *Server) discard(ctx *fasthttp.RequestCtx) { s.bodies.drain(ctx, s.bodies.brief) }
