package inference

import (
	"log/slog"
	"strings"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// Options configures an API. Backend, Gate, GPU and Log are required.
type Options struct {
	Backend Backend
	Gate    *admit.Gate // of the httpd.Server that serves the routes
	Log     *slog.Logger

	Limits   api.Limits // bounds on a request
	Defaults []string   // ids, for routes that name no model: the first one that fits the task answers

	// for TEI's /info and headers, as in compat.API

	Precision string
	GPU       func() bool
	MaxQueued int

	// Headers appends the headers that only this entrance sends to those of a success. nil: none.
	Headers func(dst []dialect.Header, o *api.Outcome) []dialect.Header
}

// API serves the inference routes. Its methods are safe for concurrent use.
type API struct {
	opt    Options
	compat compat.API
}

// New returns the API of a Backend.
func New(opt Options) *API {
	opt.Limits.OwnBody = true // httpd gives bodies away
	return &API{opt, compat.API{
		Limits:    opt.Limits,
		Defaults:  opt.Defaults,
		Precision: opt.Precision,
		MaxQueued: opt.MaxQueued,
	}}
}

// Routes returns the table of the inference routes, all of which need an API key.
func (a *API) Routes() []httpd.Route {
	table := []httpd.Route{
		{Method: "POST", Path: "/v1/encode/", Serve: a.encode, Kind: dialect.RouteEncode, Span: "encode"},
		{Method: "POST", Path: "/v1/score/", Serve: a.score, Kind: dialect.RouteScore, Span: "score"},
		{Method: "POST", Path: "/v1/extract/", Serve: a.extract, Kind: dialect.RouteExtract, Span: "extract"},
		{Method: "GET", Path: "/info", Serve: a.teiInfo, Kind: dialect.RouteTEI},
		{Method: "GET", Path: "/v1/models", Serve: a.listModels},
		{Method: "GET", Path: "/v1/models/", Serve: a.getModel},
		{Method: "POST", Path: "/", Serve: a.root, Kind: dialect.RouteTEI, Span: "tei"},
	}
	for _, route := range compat.Routes() {
		table = append(table, httpd.Route{
			Method: "POST",
			Path:   route.Path,
			Kind:   route.Kind,
			Span:   route.Span,
			Serve:  func(r *httpd.Request, _ string) { a.foreign(r, route) },
		})
	}
	return table
}

// foreignAPI returns the other APIs over the Session of a request.
func (a *API) foreignAPI(s Session) *compat.API {
	c := a.compat.For(s)
	c.GPU = a.opt.GPU()
	return c
}

// outOfScope lists the reference's endpoints that are answered with 501, together with all paths
// below them.
var outOfScope = []string{
	"/v1/generate/", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/", "/v1/estimate",
	"/v1/recommend", "/v1/jobs", "/v1/files", "/v1/batches",
}

// Unrouted returns the 501 error of a path that is out of scope, or nil. It is what
// httpd.Options.Unrouted takes.
func Unrouted(path string) (dialect.RouteKind, *errs.Error) {
	for _, p := range outOfScope {
		base := strings.TrimSuffix(p, "/")
		if path == base || strings.HasPrefix(path, base+"/") {
			return dialect.RouteOpenAI, errs.OutOfScope(path)
		}
	}
	return dialect.RouteNative, nil
}
