package configd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// Options configures a Server.
type Options struct {
	httpd.Options // its Keys are not used: Tokens say who may read
	Tokens        Tokens
	Ledger        *ledger.Ledger // nil: what is added is lost at the end of the process
	Notifier      Notifier       // nil: nobody is told of changes
	Metrics       *Metrics       // nil: nobody sees them
}

// Server serves a Content and takes changes to it. Its methods are safe for concurrent use.
type Server struct {
	*httpd.Server
	tokens   Tokens
	log      *slog.Logger
	notifier Notifier
	metrics  *Metrics

	mu      sync.Mutex              // held to replace content, and never while a store is asked
	content atomic.Pointer[Content] // nil before the first Set

	turn   chan struct{}  // has an element while somebody changes what was added
	ledger *ledger.Ledger // whose turn it is
	lost   chan error     // why writing has ended
}

// gatewayAuth is the header of a gateway that asks for keys, on requests that it passes on: what
// their caller may do.
const gatewayAuth = "X-SIE-Gateway-Auth"

// maxBody bounds the body of a request.
const maxBody = 1 << 20

// New returns a server without content, which is not ready.
func New(o Options) (*Server, error) {
	s := &Server{tokens: o.Tokens, log: o.Log, notifier: o.Notifier, ledger: o.Ledger, metrics: o.Metrics,
		turn: make(chan struct{}, 1), lost: make(chan error, 1)}
	if s.metrics == nil {
		s.metrics = NewMetrics(prometheus.NewRegistry())
	}
	s.metrics.about(s)
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.ledger == nil {
		l, err := ledger.Open(context.Background(), ledger.Memory(), ledger.NewWriter("memory"), s.log)
		if err != nil {
			return nil, err
		}
		s.ledger = l
	}
	o.Options.Keys, o.MaxBodyBytes = nil, maxBody
	read := func(path string, serve func(*httpd.Request, *Content, string)) httpd.Route {
		return httpd.Route{Method: "GET", Path: path, Open: true, Span: "config.read",
			Serve: s.reading(serve)}
	}
	write := func(method, path string, make maker) httpd.Route {
		return httpd.Route{Method: method, Path: path, Open: true, Span: "config.write",
			Serve: s.writing(make)}
	}
	routes := append(s.Probes(), []httpd.Route{
		read("/v1/configs/models", rendering((*Content).modelsAnswer)),
		read("/v1/configs/models/", model),
		read("/v1/configs/bundles",
			func(r *httpd.Request, c *Content, _ string) { sendJSON(r, c.base.bundleList) }),
		read("/v1/configs/bundles/", bundle),
		read("/v1/configs/epoch", rendering((*Content).epochAnswer)),
		read("/v1/configs/export", s.export),
		{Method: "POST", Path: "/v1/configs/resolve", Open: true, Span: "config.resolve",
			Serve: s.reading(resolve)},
		write("POST", "/v1/configs/models",
			func(c *Content, body []byte, _ string) (*change, *refusal) { return c.post(body) }),
		write("PUT", "/v1/configs/models/", (*Content).put),
		write("DELETE", "/v1/configs/models/",
			func(c *Content, _ []byte, id string) (*change, *refusal) {
				if no := checkID(id); no == nil && !s.ledger.Durable() {
					return nil, &refusal{409, object{"error": "config_store_required", "message": "Model " +
						"deletion requires a durable ConfigStore; filesystem model files are immutable."}}
				}
				return c.remove(id)
			}),
	}...)
	for i := range routes {
		routes[i] = s.metrics.counting(routes[i])
	}
	h, err := httpd.New(o.Options, routes)
	if err != nil {
		return nil, err
	}
	s.Server = h
	return s, nil
}

// Set replaces what is built in. What was added is added to it. It waits for no change that waits
// for the store: that is added once it is stored.
func (s *Server) Set(base *catalog.Catalog, bundles catalog.Bundles) error {
	b, err := newBuiltin(base, bundles)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := b.with(s.ledger.State(), nil)
	if err != nil {
		return err
	}
	s.content.Store(c)
	s.complain(c)
	return nil
}

// complain logs what is wrong with what was added.
func (s *Server) complain(c *Content) {
	for _, p := range c.Problems() {
		s.log.Warn("an added model is not as it was added", "problem", p)
	}
}

// pass ends a turn.
func (s *Server) pass() { <-s.turn }

// install serves a content that was made of another, and returns what is served then: if Set has
// replaced what is built in meanwhile, the same change of that. The ledger has the change already.
func (s *Server) install(c, from *Content) (*Content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.content.Load(); now != from {
		var err error
		if c, err = now.base.with(s.ledger.State(), now); err != nil {
			return nil, err
		}
	}
	s.content.Store(c)
	return c, nil
}

// Content returns what is served, nil before the first Set.
func (s *Server) Content() *Content { return s.content.Load() }

// Probes returns the routes that say how the process is.
func (s *Server) Probes() []httpd.Route {
	return []httpd.Route{
		{Method: "GET", Path: "/healthz", Open: true,
			Serve: func(r *httpd.Request, _ string) { sendJSON(r, []byte(`{"status":"ok"}`)) }},
		{Method: "GET", Path: "/readyz", Open: true, Serve: s.readyz},
	}
}

func (s *Server) readyz(r *httpd.Request, _ string) {
	switch {
	case s.content.Load() == nil:
		fail(r, 503, "Model registry not loaded")
	case s.Draining():
		r.Fail(dialect.RouteNative, errs.ShuttingDown())
	default:
		sendJSON(r, []byte(`{"status":"ready"}`))
	}
}

// reading returns the handler of a route that reads.
func (s *Server) reading(serve func(*httpd.Request, *Content, string)) func(*httpd.Request, string) {
	return func(r *httpd.Request, rest string) {
		export := strings.HasSuffix(string(r.Path()), "/export")
		if no := s.tokens.relayed(r.Header(gatewayAuth), !export); no != nil {
			fail(r, no.status, no.detail)
			return
		}
		if no := s.tokens.reads(r.Header("Authorization"), export); no != nil {
			fail(r, no.status, no.detail)
			return
		}
		c := s.content.Load()
		if c == nil {
			fail(r, 503, map[string]string{"error": "registry_unavailable",
				"message": "The models are not read yet; see /readyz and the log."})
			return
		}
		serve(r, c, rest)
	}
}

// rendering returns the handler of an answer about a whole content.
func rendering(render func(*Content) ([]byte, error)) func(*httpd.Request, *Content, string) {
	return func(r *httpd.Request, c *Content, _ string) {
		text, err := render(c)
		send(r, api.ContentTypeJSON, text, err)
	}
}

// export answers with all models. The parameter since has the caller told of cursors; the reference
// has none.
func (s *Server) export(r *httpd.Request, c *Content, _ string) {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000-07:00")
	text, kind, err := c.exportAt(now, r.QueryArgs().Has("since"), string(r.QueryArgs().Peek("since")))
	s.metrics.exports.WithLabelValues(kind).Inc()
	send(r, api.ContentTypeJSON, text, err)
}

// model answers with the document of an id.
func model(r *httpd.Request, c *Content, id string) {
	if id == "status" || strings.HasSuffix(id, "/status") {
		no := checkID(id)
		fail(r, no.status, no.detail)
		return
	}
	src, err := c.modelFile(id)
	if src != nil || err != nil {
		send(r, yamlType, src, err)
		return
	}
	fail(r, 404, map[string]string{"error": "model_not_found", "model_id": id,
		"message": fmt.Sprintf("Model '%s' does not exist in the catalog.", id)})
}

func bundle(r *httpd.Request, c *Content, id string) {
	if src := c.base.bundleFiles[id]; src != nil {
		answer(r, 200, yamlType, src)
		return
	}
	fail(r, 404, map[string]string{"error": "bundle_not_found", "bundle_id": id})
}

// resolve answers which bundle serves a model.
func resolve(r *httpd.Request, c *Content, _ string) {
	err := r.Do("resolve", func(_ *admit.Work, body []byte) {
		status, out := c.resolve(body)
		if status != 200 {
			fail(r, status, out)
			return
		}
		b, err := encode(out)
		if err != nil {
			r.Fail(dialect.RouteNative, errs.Internal(err))
			return
		}
		sendJSON(r, b)
	})
	if err != nil {
		r.Fail(dialect.RouteNative, errs.As(err))
	}
}

// resolve returns the status and the answer, or the detail of an error.
func (c *Content) resolve(body []byte) (int, any) {
	var q struct {
		Model  string  `json:"model"`
		Bundle *string `json:"bundle"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &q); err != nil {
			return 400, object{"error": "parse_error", "message": "Invalid JSON: " + err.Error()}
		}
	}
	if q.Model == "" {
		return 400, object{"error": "missing_field", "message": "'model' field is required"}
	}
	override, id, named := strings.Cut(q.Model, ":/")
	switch {
	case !named:
		override, id = "", q.Model
		if q.Bundle != nil {
			override = *q.Bundle
		}
	case override == "":
		return 400, object{"error": "invalid_model_spec",
			"message": "Bundle part of model_spec must not be empty"}
	case id == "":
		return 400, object{"error": "invalid_model_spec",
			"message": "Model part of model_spec must not be empty"}
	}
	override = strings.ToLower(override)
	m, carriers := c.find(id)
	if m == nil {
		return 404, object{"error": "model_not_found", "model": id, "message": "Model not found: " + id}
	}
	chosen := carriers[0]
	if override != "" {
		chosen = ""
		for _, name := range carriers {
			if strings.ToLower(name) == override {
				chosen = name
			}
		}
	}
	if chosen == "" {
		return 409, object{"error": "bundle_conflict", "model": id, "bundle": override,
			"compatible_bundles": carriers, "message": fmt.Sprintf(
				"Bundle '%s' does not support model '%s'. Compatible bundles: ['%s']",
				override, id, strings.Join(carriers, "', '"))}
	}
	return 200, object{"model": id, "resolved_bundle": chosen, "compatible_bundles": carriers,
		"profiles": resolvedProfiles(m)}
}

// find returns the model of an id in any case that a bundle carries, or nil. An exact id wins.
func (c *Content) find(id string) (found *catalog.Resolved, carriers []string) {
	m := c.resolved(id)
	for _, e := range c.entries {
		for _, r := range e.ids {
			if m == nil && strings.EqualFold(r.ID, id) {
				m = r
			}
		}
	}
	if m == nil {
		return nil, nil
	}
	if carriers = c.carriers(m); len(carriers) == 0 {
		return nil, nil
	}
	return m, carriers
}

// resolvedProfiles returns the profiles that a request for the id may name. A profile's own id has
// the default alone.
func resolvedProfiles(m *catalog.Resolved) []string {
	if m.ID != m.BaseID {
		return []string{catalog.DefaultProfile}
	}
	return profiles(m)
}

const yamlType = "application/x-yaml"

func sendJSON(r *httpd.Request, body []byte) { answer(r, 200, api.ContentTypeJSON, body) }

// send answers with what was rendered, or says that it was not.
func send(r *httpd.Request, kind string, body []byte, err error) {
	if err != nil {
		r.Fail(dialect.RouteNative, errs.Internal(err))
		return
	}
	answer(r, 200, kind, body)
}

func answer(r *httpd.Request, status int, kind string, body []byte) {
	r.SetContentType(kind)
	r.Answer(status, nil, body)
}

// fail answers with an error in the reference's form.
func fail(r *httpd.Request, status int, detail any) {
	b, err := encode(map[string]any{"detail": detail})
	if err != nil {
		r.Fail(dialect.RouteNative, errs.Internal(err))
		return
	}
	answer(r, status, api.ContentTypeJSON, b)
}
