package ipc

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/runtime/service"
)

// maxConfigs bounds the models that a sidecar adds.
const maxConfigs = 4096

// Configs holds the models of a server: those of its files, and the configurations that a sidecar
// sent. Every change of either makes a new catalog snapshot of the service. Safe for concurrent
// use.
type Configs struct {
	service *service.Service
	changed func(hash string) // called with the bundle's config hash after each change

	turn   sync.Mutex // held by one change at a time, which waits for nothing
	base   *catalog.Catalog
	bundle *catalog.Bundle // nil: none is known
	docs   []catalog.Document
	epoch  int64

	hashes atomic.Pointer[hashes]
}

// hashes are the config hashes of a snapshot; it is replaced and never changed.
type hashes struct {
	bundle string
	models map[string]string // by the id of the model's file
}

// NewConfigs returns the Configs of a service that serves base, in a bundle or in none. changed may
// be nil.
func NewConfigs(
	w *service.Service, base *catalog.Catalog, bundle *catalog.Bundle, changed func(hash string),
) *Configs {
	if changed == nil {
		changed = func(string) {}
	}
	c := &Configs{service: w, base: base, bundle: bundle, changed: changed}
	c.hashes.Store(hash(base, bundle))
	return c
}

func hash(c *catalog.Catalog, b *catalog.Bundle) *hashes {
	h := &hashes{models: make(map[string]string)}
	if b == nil {
		return h
	}
	h.bundle = c.BundleConfigHash(b)
	for _, m := range c.Models() {
		h.models[m.ID] = m.ConfigHash(b)
	}
	return h
}

// Hash returns the config hash of the bundle, "" without one.
func (c *Configs) Hash() string { return c.hashes.Load().bundle }

// ModelHash returns the config hash of one model, "" if it is not known.
func (c *Configs) ModelHash(id string) string { return c.hashes.Load().models[id] }

// SetBase replaces the models of the files and keeps those that the sidecar sent.
func (c *Configs) SetBase(base *catalog.Catalog) (service.Changes, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.setLocked(base, c.bundle, c.docs)
}

// setLocked makes a snapshot of base and docs and remembers them. On an error all stays as it was.
func (c *Configs) setLocked(
	base *catalog.Catalog, bundle *catalog.Bundle, docs []catalog.Document,
) (service.Changes, error) {
	whole := base
	for _, d := range docs {
		var err error
		if whole, err = merge(whole, d); err != nil {
			return service.Changes{}, err
		}
	}
	did, err := c.service.SetCatalog(whole)
	if err != nil {
		return did, err
	}
	c.base, c.bundle, c.docs = base, bundle, docs
	h := hash(whole, bundle)
	c.hashes.Store(h)
	c.changed(h.bundle)
	return did, nil
}

// merge adds a document to a catalog. A document that contradicts what is there replaces it: the
// newest configuration wins.
func merge(c *catalog.Catalog, d catalog.Document) (*catalog.Catalog, error) {
	out, err := catalog.Merge(c, d)
	var conflict *catalog.ConflictError
	if !errors.As(err, &conflict) {
		return out, err
	}
	m, _, err := catalog.ParseModel(d.Name, d.Source)
	if err != nil {
		return nil, err
	}
	return c.With(m)
}

// update is a set of configurations that a sidecar sent.
type update struct {
	models   []wire.ModelConfig
	replace  bool // of all models
	epoch    int64
	bundle   string
	adapters map[string][]string // of bundles
}

// apply takes over an update, all of it or nothing. A model that this server cannot run is left out
// and named in the answer.
func (c *Configs) apply(u update) (*wire.ConfigResponse, *errs.Error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	bundle, base, docs := c.bundleLocked(u), c.base, slices.Clone(c.docs)
	if u.replace {
		docs = nil
		base, _ = c.base.Select(nil)
	}
	out := &wire.ConfigResponse{}
	for i := range u.models {
		m := &u.models[i]
		field := fmt.Sprintf("models[%d].model_config", i)
		if !u.replace {
			field = "model_config"
		}
		d := catalog.Document{Name: m.ModelID, Source: []byte(m.ModelConfig)}
		one, err := merge(c.base, d)
		if err != nil {
			return nil, errs.Invalidf(field, "Field '%s': %v", field, err)
		}
		entry, err := one.Resolve(m.ModelID)
		switch {
		case err != nil && !names(one, m.ModelID):
			return nil, errs.Invalidf(field, "Field '%s' is the configuration of another model than %s",
				field, errs.Quote(m.ModelID))
		case err != nil, entry.Usable() != nil, bundle != nil && !bundle.Carries(entry.Adapter):
			out.UnsupportedModels = append(out.UnsupportedModels, m.ModelID)
			continue
		}
		docs = slices.DeleteFunc(docs, func(old catalog.Document) bool { return old.Name == d.Name })
		docs = append(docs, d)
		out.AppliedModels = append(out.AppliedModels, m.ModelID)
		for _, p := range entry.Profiles {
			out.AppliedProfiles = append(out.AppliedProfiles, m.ModelID+":"+p.Name)
		}
	}
	if len(docs) > maxConfigs {
		return nil, errs.Invalidf("models", "Field 'models': %d models; at most %d are taken",
			len(docs), maxConfigs)
	}
	if _, err := c.setLocked(base, bundle, docs); err != nil {
		return nil, errs.Invalid("models", err.Error())
	}
	c.epoch = max(c.epoch, u.epoch)
	out.Applied, out.BundleConfigHash, out.ConfigVersion = true, c.Hash(), c.epoch
	return out, nil
}

// names reports whether a catalog has a model of this id, routable or not.
func names(c *catalog.Catalog, id string) bool {
	return slices.ContainsFunc(c.Models(), func(m *catalog.Model) bool { return m.ID == id })
}

// bundleLocked returns the bundle of an update: the server's own, with the adapters that the update
// says it has.
func (c *Configs) bundleLocked(u update) *catalog.Bundle {
	adapters, said := u.adapters[u.bundle]
	switch {
	case !said:
		return c.bundle
	case c.bundle != nil && c.bundle.Name == u.bundle:
		b := *c.bundle
		b.Adapters = adapters
		return &b
	case c.bundle != nil:
		return c.bundle // of another bundle's workers
	}
	return &catalog.Bundle{Name: u.bundle, Adapters: adapters}
}

func (c *conn) applyConfig(r *wire.Request) {
	b, ok := decode[wire.ApplyRequest](c, r)
	if !ok {
		return
	}
	c.configure(r, update{
		models: []wire.ModelConfig{{ModelID: b.ModelID, ModelConfig: b.ModelConfig}},
		epoch:  b.Epoch, bundle: b.BundleID, adapters: b.BundleAdapters,
	})
}

func (c *conn) replaceConfigs(r *wire.Request) {
	b, ok := decode[wire.ReplaceRequest](c, r)
	if !ok {
		return
	}
	c.configure(r, update{
		models: b.Models, replace: true, epoch: b.Epoch, bundle: b.BundleID, adapters: b.BundleAdapters,
	})
}

func (c *conn) configure(r *wire.Request, u update) {
	out, err := c.server.opt.Configs.apply(u)
	if err != nil {
		c.server.opt.Log.Error("ipc: a configuration was not taken", "method", r.Method, "error", err.Message)
		c.refuse(r, err)
		return
	}
	c.server.opt.Log.Info("ipc: configuration taken", "epoch", out.ConfigVersion,
		"models", len(out.AppliedModels), "unsupported", out.UnsupportedModels, "hash", out.BundleConfigHash)
	c.reply(r, out)
}
