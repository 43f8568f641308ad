package server

import (
	"slices"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/pages"
	"github.com/sie-engine/sie/internal/tenant"
)

// routes returns the table of routes: the server's own, those of its pages, and those of inference.
// A path that ends in "/", except "/" itself, is followed by a model id or a file name. Open routes
// need no API key, because the machines that read health have none. /metrics needs the role for it,
// or its own port: it names models and tenants and counts their requests, and reveals nothing about
// texts or keys.
func (s *Server) routes(a *inference.API) []httpd.Route {
	return slices.Concat(s.Probes(), []httpd.Route{
		{Method: "GET", Path: "/health", Serve: s.teiHealth, Kind: dialect.RouteTEI, Open: true},
		{Method: "GET", Path: "/metrics", Serve: s.series, Roles: tenant.Metrics},
		{Method: "GET", Path: "/ws/status", Serve: s.status, Roles: tenant.Inference | tenant.Metrics},
	}, pages.Routes(pages.Document()), a.Routes())
}

// Probes returns the routes that say how the process is.
func (s *Server) Probes() []httpd.Route {
	return []httpd.Route{
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/livez", Serve: s.livez, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
	}
}
