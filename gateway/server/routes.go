package server

import (
	"slices"
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/pages"
	"github.com/sie-engine/sie/internal/tenant"
)

// routes returns the table of routes: the gateway's own, those of its pages, and those of
// inference. Probes need no API key, because the machines that read them have none. What names
// workers does, unless Options.OpenStatus says otherwise; metrics need the role for them, or their
// own port.
func (s *Server) routes(a *inference.API) []httpd.Route {
	return slices.Concat(s.Probes(), []httpd.Route{
		{Method: "GET", Path: "/metrics", Serve: s.series, Roles: tenant.Metrics},
		{Method: "GET", Path: "/health", Serve: s.health, Open: s.opt.OpenStatus, Roles: watches},
		{Method: "GET", Path: "/ws/cluster-status", Serve: s.socket, Open: s.opt.OpenStatus, Roles: watches},
		{Method: "GET", Path: "/ws/status", Serve: s.socket, Open: s.opt.OpenStatus, Roles: watches},
		{Method: "GET", Path: "/v1/usage", Serve: s.usage, Roles: watches},
		{Method: "GET", Path: "/v1/configs/models", Serve: s.listConfigs},
		{Method: "GET", Path: "/v1/configs/models/", Serve: s.getConfig},
		{Method: "GET", Path: "/v1/configs/bundles", Serve: s.listBundles},
		{Method: "GET", Path: "/v1/configs/bundles/", Serve: s.getBundle},
		{Method: "POST", Path: "/v1/configs/resolve", Serve: s.resolve},
		{Method: "GET", Path: "/v1/pools", Serve: s.listPools},
		{Method: "POST", Path: "/v1/pools", Serve: s.putPool},
		{Method: "GET", Path: "/v1/pools/", Serve: s.getPool},
		{Method: "DELETE", Path: "/v1/pools/", Serve: s.deletePool},
		{Method: "POST", Path: "/v1/pools/", Serve: s.renewPool},
	}, s.relayed(), pages.Routes(pages.GatewayDocument()), a.Routes())
}

// Probes returns the routes that say how the process is.
func (s *Server) Probes() []httpd.Route {
	return []httpd.Route{
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/livez", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
	}
}

// watches are the roles of routes that callers and machines that watch both use.
const watches = tenant.Inference | tenant.Metrics

// healthz says that the process answers. It stays ok while the gateway drains.
func (s *Server) healthz(r *httpd.Request, _ string) { r.Plain(200, "ok") }

// readyz says whether requests should be sent to this gateway. Workers play no part: without any,
// the gateway answers with what its callers wait on.
func (s *Server) readyz(r *httpd.Request, _ string) {
	switch missing := s.waits(); {
	case s.leaving():
		r.Plain(503, "draining")
	case missing != "":
		r.Plain(503, "not ready: "+missing)
	default:
		r.Plain(200, "ok")
	}
}

func (s *Server) leaving() bool { return s.retired.Load() || s.http.Draining() }

// series serves the metrics.
func (s *Server) series(r *httpd.Request, _ string) { s.metrics(r.RequestCtx) }

// socket serves both status sockets, whose frames are the same.
func (s *Server) socket(r *httpd.Request, rest string) { s.watch.Serve(r, rest) }

// headers appends what only a gateway tells about a success: the model that a name stood for, the
// worker, and the times of the queue.
func headers(dst []dialect.Header, o *api.Outcome) []dialect.Header {
	if o.Alias {
		dst = append(dst, dialect.Header{Name: "X-SIE-Model", Value: o.ModelID})
	}
	if o.Worker != "" {
		dst = append(dst, dialect.Header{Name: "X-SIE-Worker", Value: o.Worker})
	}
	if o.BundleHash != "" {
		dst = append(dst, dialect.Header{Name: "X-SIE-Bundle-Config-Hash", Value: o.BundleHash})
	}
	dst = append(dst, dialect.Header{Name: "X-Queue-Publish-Time", Value: millis(o.Publish)},
		dialect.Header{Name: "X-Queue-Wait-Time", Value: millis(o.QueueWait)})
	if o.Fetch > 0 {
		dst = append(dst, dialect.Header{Name: "X-Payload-Fetch-Time", Value: millis(o.Fetch)})
	}
	return dst
}

func millis(d time.Duration) string { return strconv.FormatFloat(api.Milliseconds(d), 'f', 2, 64) }
