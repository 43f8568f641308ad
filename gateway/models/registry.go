package models

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/catalog/listing"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/confighash"
	"github.com/sie-engine/sie/internal/errs"
)

// Options configures a Registry.
type Options struct {
	// Lanes are the lanes of the cluster, in order of preference. If there are none, a request may
	// go to every lane that has live workers.
	Lanes []bus.Lane
	// Weights has the lanes that share the requests of their machine profile and bundle.
	Weights map[bus.Lane]uint64
	Fleet   interface{ Snapshot() *fleet.Snapshot } // the workers
	// Pools returns the lanes of a pool that a client made, and false if there is none of the name,
	// or an error where that is not known. nil: there are no such pools.
	Pools func(name string) (lanes []bus.Lane, ok bool, err error)
}

// Registry has the models of the cluster. Its methods are safe for concurrent use. A Registry
// without a catalog answers every question for a model with PROVISIONING.
type Registry struct {
	opt     Options
	current atomic.Pointer[snapshot]
}

// snapshot is a catalog with all that follows from it. It never changes.
type snapshot struct {
	catalog *catalog.Catalog
	bundles catalog.Bundles
	// folded has the ids in lower case; nil for one that several ids share
	folded  map[string]*catalog.Resolved
	byID    map[string][]carrier    // of a routable id, in order of preference
	hashes  map[string]fleet.Hashes // of a bundle
	parts   map[*catalog.Model][]part
	version Version
	config  *Config
}

// carrier is a bundle that carries a model.
type carrier struct {
	*catalog.Bundle
	hash     string // of the model in the bundle
	document string // of all that the model's document says; "": not known
}

// Version tells which catalog a Registry has.
type Version struct {
	Epoch       uint64 // of sie-config; 0 without one
	BundlesHash string
	ConfigsHash string // of the config hashes of all bundles; "" without sie-config
	ModelsHash  string // of all documents; "" where sie-config does not say
	Partial     bool   // some models could not be read, so that all are read again
}

// New returns a registry without a catalog.
func New(o Options) *Registry { return &Registry{opt: o} }

// Set replaces all models and bundles. Requests that have found their Model keep the earlier ones.
func (r *Registry) Set(c *catalog.Catalog, b catalog.Bundles, v Version) { r.SetSaid(c, b, v, nil) }

// SetSaid is Set with the hashes of all that the models' documents say, by id, as sie-config says
// them. Of what is not there, workers are not asked.
func (r *Registry) SetSaid(c *catalog.Catalog, b catalog.Bundles, v Version, said map[string]string) {
	if v.BundlesHash == "" {
		v.BundlesHash = b.Hash()
	}
	s := &snapshot{catalog: c, bundles: b, version: v, hashes: make(map[string]fleet.Hashes, len(b)),
		folded: make(map[string]*catalog.Resolved, c.Len()), byID: make(map[string][]carrier, c.Len())}
	s.parts = r.parts(c, b)
	for i, bundle := range b {
		documents := make(map[string]string)
		config := confighash.OfParts(func(yield func([]byte) bool) {
			for _, m := range c.Models() {
				text := s.parts[m][i].text
				if text != nil {
					documents[m.ID] = said[m.ID]
				}
				if !yield(text) {
					return
				}
			}
		})
		s.hashes[bundle.Name] = fleet.Hashes{Config: config, Documents: confighash.Documents(documents)}
	}
	for _, m := range c.List() {
		key := strings.ToLower(m.ID)
		if _, shared := s.folded[key]; shared {
			s.folded[key] = nil
		} else {
			s.folded[key] = m
		}
		for i, bundle := range b {
			if bundle.Carries(m.Adapter) {
				s.byID[m.ID] = append(s.byID[m.ID], carrier{bundle, s.parts[m.Model][i].hash, said[m.BaseID]})
			}
		}
	}
	s.config = &Config{Version: v, Catalog: c, Bundles: b, Hashes: s.hashes, Lanes: r.opt.Lanes}
	r.current.Store(s)
}

// part is what the config hash of a bundle covers of one model.
type part struct {
	text []byte // nil: the bundle carries no profile of it
	hash string // of the model alone
}

// parts returns those of all models by bundle. A model that was there before with the same bundles
// keeps its own.
func (r *Registry) parts(c *catalog.Catalog, bundles catalog.Bundles) map[*catalog.Model][]part {
	var known map[*catalog.Model][]part
	if before := r.current.Load(); before != nil && slices.EqualFunc(before.bundles, bundles,
		func(a, b *catalog.Bundle) bool { return a.Name == b.Name && slices.Equal(a.Adapters, b.Adapters) }) {
		known = before.parts
	}
	out := make(map[*catalog.Model][]part, len(c.Models()))
	for _, m := range c.Models() {
		if out[m] = known[m]; out[m] != nil {
			continue
		}
		list := make([]part, len(bundles))
		for i, b := range bundles {
			if list[i].text = m.ConfigPart(b); list[i].text != nil {
				list[i].hash = confighash.OfParts(slices.Values([][]byte{list[i].text}))
			}
		}
		out[m] = list
	}
	return out
}

// Version returns which catalog there is. ok is false before the first Set.
func (r *Registry) Version() (v Version, ok bool) {
	s := r.current.Load()
	if s == nil {
		return Version{}, false
	}
	return s.version, true
}

// bundles returns those of the snapshot now.
func (r *Registry) bundles() catalog.Bundles {
	if s := r.current.Load(); s != nil {
		return s.bundles
	}
	return nil
}

// Config is what other parts of the gateway show of a snapshot. It never changes.
type Config struct {
	Version Version
	Catalog *catalog.Catalog
	Bundles catalog.Bundles // in order of preference
	// Hashes holds the hashes that a worker of a bundle should have, by the bundle's name.
	Hashes map[string]fleet.Hashes
	// Lanes are the lanes of the cluster; none: those of live workers.
	Lanes []bus.Lane
}

// Runs reports whether a worker of a bundle may ever come: where the lanes are configured, one of
// them is of the bundle.
func (c *Config) Runs(bundle string) bool {
	return len(c.Lanes) == 0 ||
		slices.ContainsFunc(c.Lanes, func(l bus.Lane) bool { return l.Bundle == bundle })
}

// Config returns the snapshot now, nil before the first Set. It is the same pointer until the next
// Set.
func (r *Registry) Config() *Config {
	s := r.current.Load()
	if s == nil {
		return nil
	}
	return s.config
}

// Model is one model in one snapshot. It is cheap to copy and never changes.
type Model struct {
	Entry *catalog.Resolved
	Name  string // as the caller spelled it, without a bundle

	bundle   string // that the caller asks for; "": any
	registry *Registry
	snapshot *snapshot
}

// About describes the model to the routes of other APIs. Its Handle is the Model.
func (m Model) About() compat.Model {
	c := listing.Model(m.Entry)
	c.Handle = m
	return c
}

// Find reads what a request names: "model" or "bundle:/model". An id is found in any case, if it is
// the only one that differs in case alone; a spelling that is an id itself wins. The error is the
// 404 with suggestions.
func (r *Registry) Find(spec string) (Model, error) {
	return r.find(spec, (*catalog.Catalog).Resolve, func(id string) string { return id })
}

// FindOpenAI is Find for OpenAI-style routes, where "org__name" also names "org/name".
func (r *Registry) FindOpenAI(spec string) (Model, error) {
	m, err := r.find(spec, (*catalog.Catalog).ResolveOpenAI, catalog.DecodeID)
	if err == nil {
		m.Name = m.Entry.ID // as sie-server answers
	}
	return m, err
}

func (r *Registry) find(
	spec string, resolve func(*catalog.Catalog, string) (*catalog.Resolved, error),
	decode func(string) string,
) (Model, error) {
	s := r.current.Load()
	if s == nil {
		return Model{}, errs.NoCatalog()
	}
	bundle, name, named := strings.Cut(spec, ":/")
	if !named {
		bundle, name = "", spec
	}
	entry, err := resolve(s.catalog, name)
	for _, spelling := range []string{name, decode(name)} {
		if entry == nil {
			entry = s.folded[strings.ToLower(spelling)]
		}
	}
	if entry == nil {
		return Model{}, errs.UnknownModel(err.Error())
	}
	return Model{Entry: entry, Name: name, bundle: bundle, registry: r, snapshot: s}, nil
}

// List describes every id in the order of the catalog, with the workers that have it loaded. It is
// nil without a catalog.
func (r *Registry) List() []api.ModelInfo {
	s := r.current.Load()
	if s == nil {
		return nil
	}
	f := r.opt.Fleet.Snapshot()
	out := make([]api.ModelInfo, 0, s.catalog.Len())
	for _, m := range s.catalog.List() {
		out = append(out, s.info(m, f))
	}
	return out
}

// Info describes one model, or returns the 404.
func (r *Registry) Info(id string) (*api.ModelInfo, error) {
	m, err := r.Find(id)
	if err != nil {
		return nil, err
	}
	info := m.snapshot.info(m.Entry, r.opt.Fleet.Snapshot())
	return &info, nil
}

// info returns the entry of a model in the list of models.
func (s *snapshot) info(m *catalog.Resolved, f *fleet.Snapshot) api.ModelInfo {
	info := listing.Info(m)
	has := &api.GatewayInfo{Bundles: []string{}, Workers: []string{}}
	for _, b := range s.byID[m.ID] {
		has.Bundles = append(has.Bundles, b.Name)
	}
	var loading, failed, ready int
	for _, l := range f.Lanes {
		if s.carrier(m, l.ID.Bundle) == nil {
			continue
		}
		for _, w := range l.Ready {
			ready++
			switch {
			case w.Loaded(m.ID):
				has.Workers = append(has.Workers, w.ID)
			case w.Loading(m.ID):
				loading++
			case w.Failed(m.ID) || w.Unsupported(m.ID) || w.Unsupported(m.BaseID):
				failed++
			}
		}
	}
	has.WorkerCount = len(has.Workers)
	info.GatewayInfo = has
	switch {
	case has.WorkerCount > 0:
		info.State, info.Loaded = "loaded", true
	case loading > 0:
		info.State = "loading"
	case ready > 0 && failed == ready:
		info.State = "failed"
	default:
		info.State = "available"
	}
	return info
}

// carrier returns the bundle of a name, in any case, if it carries the model, or nil.
func (s *snapshot) carrier(m *catalog.Resolved, bundle string) *carrier {
	list := s.byID[m.ID]
	for i := range list {
		if strings.EqualFold(list[i].Name, bundle) {
			return &list[i]
		}
	}
	return nil
}
