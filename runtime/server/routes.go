package server

import (
	"strings"

	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// routes returns the table of routes. A path that ends in "/", except "/" itself, is followed by a
// model id or a file name. Open routes need no API key, because the machines that read health and
// metrics have none. /metrics names the models in use and counts their requests and tokens; it
// reveals nothing about texts, keys or clients. The pages are the same for everybody and ask for a
// key themselves.
func (s *Server) routes() []httpd.Route {
	table := []httpd.Route{
		{Method: "POST", Path: "/v1/encode/", Serve: s.encode, Kind: dialect.RouteEncode, Span: "encode"},
		{Method: "POST", Path: "/v1/score/", Serve: s.scores, Kind: dialect.RouteScore, Span: "score"},
		{Method: "POST", Path: "/v1/extract/", Serve: s.extract, Kind: dialect.RouteExtract, Span: "extract"},
		{Method: "GET", Path: "/info", Serve: s.teiInfo, Kind: dialect.RouteTEI},
		{Method: "GET", Path: "/health", Serve: s.teiHealth, Kind: dialect.RouteTEI, Open: true},
		{Method: "GET", Path: "/v1/models", Serve: s.listModels},
		{Method: "GET", Path: "/v1/models/", Serve: s.getModel},
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/livez", Serve: s.livez, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
		{Method: "GET", Path: "/metrics", Serve: s.series, Open: true},
		{Method: "GET", Path: "/ws/status", Serve: s.status},
		{Method: "GET", Path: "/openapi.json", Serve: s.openapi, Open: true},
		{Method: "GET", Path: "/docs", Serve: s.docs, Open: true},
		{Method: "GET", Path: "/static/", Serve: s.files, Open: true},
		{Method: "GET", Path: "/", Serve: s.index, Open: true},
		{Method: "POST", Path: "/", Kind: dialect.RouteTEI, Span: "tei",
			Serve: func(r *httpd.Request, _ string) { s.foreign(r, s.compat.Root()) }},
	}
	for _, route := range compat.Routes() {
		table = append(table, httpd.Route{
			Method: "POST",
			Path:   route.Path,
			Kind:   route.Kind,
			Span:   route.Span,
			Serve:  func(r *httpd.Request, _ string) { s.foreign(r, route) },
		})
	}
	return table
}

// outOfScope lists the reference's endpoints that this server answers with 501, together with all
// paths below them.
var outOfScope = []string{
	"/v1/generate/", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/", "/v1/estimate",
	"/v1/recommend", "/v1/jobs", "/v1/files", "/v1/batches",
}

// unrouted returns the 501 error of a path that is out of scope.
func unrouted(path string) (dialect.RouteKind, *errs.Error) {
	if scopeless(path) {
		return dialect.RouteOpenAI, errs.OutOfScope(path)
	}
	return dialect.RouteNative, nil
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
