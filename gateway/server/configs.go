package server

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// The read side of the configuration: cluster.md 1.10. It is served from the gateway's own
// snapshot; sie-config alone takes changes.

const configSource = "gateway-registry"

// modelConfig is one base model of the configuration, with the bundles that can serve it.
type modelConfig struct {
	ID       string   `json:"model_id" yaml:"sie_id"`
	Profiles []string `json:"profiles" yaml:"profiles"`
	Bundles  []string `json:"bundles" yaml:"bundles"` // in order of preference
	Source   string   `json:"source" yaml:"source"`
}

// configView is a configuration in the form that the routes show.
type configView struct {
	of     *models.Config
	models []modelConfig // ordered by id
	byID   map[string]*modelConfig
}

// configViews makes the view of a configuration once.
type configViews struct{ last atomic.Pointer[configView] }

func (v *configViews) view(c *models.Config) *configView {
	if last := v.last.Load(); last != nil && last.of == c {
		return last
	}
	out := viewConfig(c)
	v.last.Store(out)
	return out
}

func viewConfig(c *models.Config) *configView {
	out := &configView{of: c, byID: map[string]*modelConfig{}}
	if c == nil {
		return out
	}
	for _, m := range c.Catalog.HashModels() {
		one := modelConfig{ID: m.ID, Source: configSource, Bundles: []string{}, Profiles: []string{}}
		var modules []string
		for _, p := range m.Profiles {
			module, _, _ := strings.Cut(p.AdapterPath, ":")
			one.Profiles, modules = append(one.Profiles, p.Name), append(modules, module)
		}
		slices.Sort(one.Profiles)
		for _, b := range c.Bundles {
			if slices.ContainsFunc(modules, func(m string) bool { return slices.Contains(b.Adapters, m) }) {
				one.Bundles = append(one.Bundles, b.Name)
			}
		}
		out.models = append(out.models, one)
	}
	slices.SortFunc(out.models, func(a, b modelConfig) int { return strings.Compare(a.ID, b.ID) })
	for i := range out.models {
		out.byID[out.models[i].ID] = &out.models[i]
	}
	return out
}

// find returns a model by its id, which may name a profile ("id:profile").
func (v *configView) find(id string) (*modelConfig, error) {
	if m, ok := v.byID[id]; ok {
		return m, nil
	}
	if v.of == nil {
		return nil, errs.NoCatalog()
	}
	r, err := v.of.Catalog.Resolve(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return v.byID[r.BaseID], nil
}

// configured reports whether an id is that of a model, or of a profile of one.
func (v *configView) configured(id string) bool {
	if v.byID[id] != nil {
		return true
	}
	i := strings.LastIndexByte(id, ':')
	if i < 0 || v.byID[id[:i]] == nil {
		return false
	}
	return slices.Contains(v.byID[id[:i]].Profiles, id[i+1:])
}

// config returns the view of the configuration now.
func (s *Server) config() *configView { return s.configs.view(s.opt.Config()) }

// known reports whether there is a configuration, and refuses the request where there is none: a
// gateway that was just started does not know that there is no model.
func (s *Server) known(r *httpd.Request) bool {
	if s.opt.Config() != nil {
		return true
	}
	r.Fail(dialect.RouteNative, errs.NoCatalog())
	return false
}

func (s *Server) listConfigs(r *httpd.Request, _ string) {
	if !s.known(r) {
		return
	}
	type entry struct {
		ID       string   `json:"model_id"`
		Profiles []string `json:"profiles"`
		Source   string   `json:"source"`
	}
	list := []entry{}
	for _, m := range s.config().models {
		list = append(list, entry{m.ID, m.Profiles, m.Source})
	}
	answer(r, map[string]any{"models": list})
}

// getConfig answers GET /v1/configs/models/{id} and …/{id}/status. A model whose id ends in
// "/status" is found under that id first.
func (s *Server) getConfig(r *httpd.Request, id string) {
	v := s.config()
	m, err := v.find(id)
	if base, ok := strings.CutSuffix(id, "/status"); ok && err != nil {
		if m, err := v.find(base); err == nil {
			s.configStatus(r, v.of, m)
			return
		}
	}
	if err != nil {
		r.Fail(dialect.RouteNative, errs.As(err))
		return
	}
	document(r, m)
}

// bundleStatus says which workers of a bundle run the configuration that they should.
type bundleStatus struct {
	Bundle   string   `json:"bundle_id"`
	Expected string   `json:"expected_bundle_config_hash"`
	Eligible int      `json:"total_eligible_workers"`
	Acked    []string `json:"acked_workers"`
	Pending  []string `json:"pending_workers"`
	Done     bool     `json:"acked"`
}

// configStatus answers for one model. It is acknowledged when the workers of all bundles have it
// that the cluster has lanes of; a bundle of no lane never has one.
func (s *Server) configStatus(r *httpd.Request, c *models.Config, m *modelConfig) {
	f, all := s.opt.Fleet(), slices.ContainsFunc(m.Bundles, c.Runs)
	list := []bundleStatus{}
	for _, name := range m.Bundles {
		b := bundleStatus{Bundle: name, Expected: c.Hashes[name].Config,
			Acked: []string{}, Pending: []string{}}
		for _, w := range f.Workers {
			switch {
			case !w.Live || w.Lane.Bundle != name:
			case b.Expected != "" && w.Heartbeat.BundleConfigHash == b.Expected &&
				w.Has(c.Hashes[name]):
				b.Acked = append(b.Acked, w.ID)
			default:
				b.Pending = append(b.Pending, w.ID)
			}
		}
		b.Eligible = len(b.Acked) + len(b.Pending)
		b.Done = b.Eligible > 0 && len(b.Pending) == 0
		all = all && (b.Done || b.Eligible == 0 && !c.Runs(name))
		list = append(list, b)
	}
	answer(r, map[string]any{
		"model_id": m.ID, "config_epoch": c.Version.Epoch, "all_bundles_acked": all,
		"no_bundles": len(m.Bundles) == 0, "bundles": list, "source": configSource,
	})
}

func (s *Server) listBundles(r *httpd.Request, _ string) {
	type entry struct {
		ID       string `json:"bundle_id"`
		Priority int    `json:"priority"`
		Engine   string `json:"engine"`
		Adapters int    `json:"adapter_count"`
		Source   string `json:"source"`
		Workers  int    `json:"connected_workers"`
	}
	if !s.known(r) {
		return
	}
	list, live := []entry{}, map[string]int{}
	for _, w := range s.opt.Fleet().Workers {
		if w.Live {
			live[w.Lane.Bundle]++
		}
	}
	for _, b := range s.opt.Config().Bundles {
		list = append(list,
			entry{b.Name, b.Priority, engine(b), len(b.Adapters), configSource, live[b.Name]})
	}
	answer(r, map[string]any{"bundles": list})
}

func (s *Server) getBundle(r *httpd.Request, name string) {
	if !s.known(r) {
		return
	}
	for _, b := range s.opt.Config().Bundles {
		if b.Name == name {
			document(r, struct {
				Adapters []string `yaml:"adapters"`
				Engine   string   `yaml:"engine"`
				Name     string   `yaml:"name"`
				Priority int      `yaml:"priority"`
				Source   string   `yaml:"source"`
			}{b.Adapters, engine(b), b.Name, b.Priority, configSource})
			return
		}
	}
	r.Fail(dialect.RouteNative, errs.NoSuch("Bundle "+errs.Quote(name)+" not found"))
}

// maxResolve bounds the body of POST /v1/configs/resolve, in bytes.
const maxResolve = 64 << 10

// resolve answers POST /v1/configs/resolve: which bundle serves a model.
func (s *Server) resolve(r *httpd.Request, _ string) {
	err := r.Do("", func(_ *admit.Work, body []byte) {
		var q struct{ Model, Bundle string }
		if len(body) > maxResolve {
			r.Fail(dialect.RouteNative, errs.BodyTooLarge(maxResolve))
			return
		}
		if err := json.Unmarshal(body, &q); err != nil || q.Model == "" {
			r.Fail(dialect.RouteNative, errs.Invalid("model",
				`the body must be JSON like {"model":"org/name","bundle":"default"}; bundle is optional`))
			return
		}
		if bundle, model, ok := strings.Cut(q.Model, ":/"); ok {
			q.Bundle, q.Model = strings.ToLower(bundle), model
		}
		m, err := s.config().find(q.Model)
		switch {
		case err != nil:
			r.Fail(dialect.RouteNative, errs.As(err))
		case len(m.Bundles) == 0:
			r.Fail(dialect.RouteNative, errs.UnknownModel("No bundle can serve model "+errs.Quote(m.ID)))
		case q.Bundle == "":
			q.Bundle = m.Bundles[0]
			fallthrough
		case slices.Contains(m.Bundles, q.Bundle):
			answer(r, map[string]any{"model": m.ID, "resolved_bundle": q.Bundle,
				"compatible_bundles": m.Bundles, "profiles": m.Profiles})
		default:
			r.Fail(dialect.RouteNative, errs.WrongBundle(m.ID, q.Bundle, m.Bundles))
		}
	})
	if err != nil {
		r.Fail(dialect.RouteNative, errs.As(err))
	}
}

func engine(b *catalog.Bundle) string {
	if b.Engine == "" {
		return "pytorch"
	}
	return b.Engine
}

func answer(r *httpd.Request, v any) {
	r.SetContentType(api.ContentTypeJSON)
	r.SetBody(encode(v))
}

func document(r *httpd.Request, v any) {
	b, err := yaml.Marshal(v)
	if err != nil {
		panic("server: a plain struct does not encode: " + err.Error())
	}
	r.SetContentType("application/x-yaml")
	r.SetBody(b)
}
