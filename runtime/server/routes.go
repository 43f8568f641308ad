package server

import (
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
)

// routes returns the table of routes: the server's own, and those of inference. A path that ends in
// "/", except "/" itself, is followed by a model id or a file name. Open routes need no API key,
// because the machines that read health and metrics have none. /metrics names the models in use and
// counts their requests and tokens; it reveals nothing about texts, keys or clients. The pages are
// the same for everybody and ask for a key themselves.
func (s *Server) routes(a *inference.API) []httpd.Route {
	return append([]httpd.Route{
		{Method: "GET", Path: "/health", Serve: s.teiHealth, Kind: dialect.RouteTEI, Open: true},
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/livez", Serve: s.livez, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
		{Method: "GET", Path: "/metrics", Serve: s.series, Open: true},
		{Method: "GET", Path: "/ws/status", Serve: s.status},
		{Method: "GET", Path: "/openapi.json", Serve: s.openapi, Open: true},
		{Method: "GET", Path: "/docs", Serve: s.docs, Open: true},
		{Method: "GET", Path: "/static/", Serve: s.files, Open: true},
		{Method: "GET", Path: "/", Serve: s.index, Open: true},
	}, a.Routes()...)
}
