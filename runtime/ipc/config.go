package ipc

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/confighash"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/service"
)

// maxConfigs bounds the models that a sidecar adds.
const maxConfigs = 4096

// Configs holds the models of a server: those of its files, until a sidecar sends all models, and
// the configurations that a sidecar added to either. Every change makes a new catalog snapshot of
// the service. Safe for concurrent use.
type Configs struct {
	service *service.Service
	changed func(hash string) // called with the bundle's config hash after each change

	turn  sync.Mutex // held by one change at a time, which waits for nothing
	now   contents
	epoch int64

	hashes atomic.Pointer[hashes]
}

// contents are where the models come from. It is replaced and never changed.
type contents struct {
	files  *catalog.Catalog
	all    *catalog.Catalog   // that a sidecar sent, in place of files; nil: none
	said   map[string]string  // the document hashes of all, by id, as the sidecar said them
	docs   []catalog.Document // that a sidecar added
	bundle *catalog.Bundle    // nil: none is known
}

// base returns the models to which documents are added.
func (c *contents) base() *catalog.Catalog {
	if c.all != nil {
		return c.all
	}
	return c.files
}

// hashes are the config hashes of a snapshot; it is replaced and never changed.
type hashes struct {
	bundle string
	models map[string]string // by the id of the model's file

	documents string            // of the bundle; "": not known
	said      map[string]string // of each model, as models; a model that is not there is not known
}

// NewConfigs returns the Configs of a service that serves base, in a bundle or in none. changed may
// be nil.
func NewConfigs(
	w *service.Service, base *catalog.Catalog, bundle *catalog.Bundle, changed func(hash string),
) *Configs {
	if changed == nil {
		changed = func(string) {}
	}
	c := &Configs{service: w, now: contents{files: base, bundle: bundle}, changed: changed}
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

// DocumentsHash returns the hash of all that the documents of the bundle say; "" if it is not
// known.
func (c *Configs) DocumentsHash() string { return c.hashes.Load().documents }

// current reports whether a slice of a model is of the configuration that these hashes are of. What
// either side does not know is not compared.
func (h *hashes) current(wi *work.Item, model string) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	said := h.said[model]
	return same(wi.ModelConfigHash, h.models[model]) && (said == unread || same(wi.ModelDocumentHash, said))
}

// unread stands for the hash of a document that cannot be read: the model stays as it was and is
// served so, and the bundle's hash is not the one that it should be.
const unread = "unread"

// Hash returns the config hash of the bundle, "" without one.
func (c *Configs) Hash() string { return c.hashes.Load().bundle }

// ModelHash returns the config hash of one model, "" if it is not known.
func (c *Configs) ModelHash(id string) string { return c.hashes.Load().models[id] }

// SetBase replaces the models of the files and keeps those that the sidecar sent.
func (c *Configs) SetBase(base *catalog.Catalog) (service.Changes, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	next := c.now
	next.files = base
	return c.setLocked(next)
}

// setLocked makes a snapshot of next and remembers it. On an error all stays as it was.
func (c *Configs) setLocked(next contents) (service.Changes, error) {
	whole := next.base()
	for _, d := range next.docs {
		var err error
		if whole, err = merge(whole, d); err != nil {
			return service.Changes{}, err
		}
	}
	did, err := c.service.SetCatalog(whole)
	if err != nil {
		return did, err
	}
	c.now = next
	h := hash(whole, next.bundle)
	h.documents, h.said = confighash.Documents(next.said), next.said
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
	epoch    int64
	bundle   string
	adapters map[string][]string // of bundles
}

// apply adds a model's configuration. One that this server cannot run is left out and named in the
// answer.
func (c *Configs) apply(u update) (*response, *errs.Error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	next := c.now
	next.bundle, next.docs = c.bundleLocked(u), slices.Clone(c.now.docs)
	next.said = nil // nobody says the hashes of these
	out := &response{}
	for _, m := range u.models {
		const field = "model_config"
		d := catalog.Document{Name: m.ModelID, Source: []byte(m.ModelConfig)}
		one, err := merge(next.base(), d)
		if err != nil {
			return nil, errs.Invalidf(field, "Field '%s': %v", field, err)
		}
		if !names(one, m.ModelID) {
			return nil, errs.Invalidf(field, "Field '%s' is the configuration of another model than %s",
				field, errs.Quote(m.ModelID))
		}
		if !out.note(one, m.ModelID, next.bundle) {
			continue
		}
		next.docs = slices.DeleteFunc(next.docs,
			func(old catalog.Document) bool { return old.Name == d.Name })
		next.docs = append(next.docs, d)
	}
	return c.take(next, u.epoch, out)
}

// replace makes the models of an update the only ones. A document that cannot be read leaves its
// model as it was and is named in the answer, so that one does not keep the others from a server of
// another version. A model that this server cannot run is named too; requests for it are told so.
func (c *Configs) replace(u update) (*response, *errs.Error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if len(u.models) > maxConfigs {
		return nil, tooMany(len(u.models))
	}
	before := make(map[string]*catalog.Model)
	for _, m := range c.now.base().Models() {
		before[m.ID] = m
	}
	next := contents{files: c.now.files, bundle: c.bundleLocked(u), said: make(map[string]string)}
	out := &response{}
	models := make([]*catalog.Model, 0, len(u.models))
	for _, x := range u.models {
		m, one, err := readModel(x, before[x.ModelID])
		if err != nil {
			out.broken = append(out.broken, err)
			out.UnsupportedModels = append(out.UnsupportedModels, x.ModelID)
			if before[x.ModelID] != nil {
				models = append(models, before[x.ModelID])
			}
			next.said[x.ModelID] = unread
			continue
		}
		models = append(models, m)
		next.said[m.ID] = x.ModelDocumentHash
		out.note(one, m.ID, next.bundle)
	}
	var err error
	if next.all, err = catalog.Of(models...); err != nil {
		return nil, errs.Invalidf("models", "Field 'models': %v", err)
	}
	return c.take(next, u.epoch, out)
}

// response is what became of an update.
type response struct {
	wire.ConfigResponse
	broken []error // documents that cannot be read
	did    service.Changes
}

// note notes a model, alone in its catalog or not, and reports whether this server can run it.
func (r *response) note(c *catalog.Catalog, id string, bundle *catalog.Bundle) bool {
	entry, err := c.Resolve(id)
	if err != nil || entry.Usable() != nil || bundle != nil && !bundle.Carries(entry.Adapter) {
		r.UnsupportedModels = append(r.UnsupportedModels, id)
		return false
	}
	r.AppliedModels = append(r.AppliedModels, id)
	for _, p := range entry.Profiles {
		r.AppliedProfiles = append(r.AppliedProfiles, id+":"+p.Name)
	}
	return true
}

// readModel reads a model, and the catalog of it alone. Of the same document as before it returns
// the model before.
func readModel(x wire.ModelConfig, before *catalog.Model) (*catalog.Model, *catalog.Catalog, error) {
	m := before
	if m == nil || string(m.Source()) != x.ModelConfig {
		var err error
		if m, _, err = catalog.ParseModel(x.ModelID, []byte(x.ModelConfig)); err != nil {
			return nil, nil, err
		}
	}
	if m.ID != x.ModelID {
		return nil, nil, fmt.Errorf("the document of %.200q is of %.200q", x.ModelID, m.ID)
	}
	one, err := catalog.Of(m) // its profiles resolve, or it would take all others with it
	return m, one, err
}

// take makes next what is served, and completes the answer.
func (c *Configs) take(next contents, epoch int64, out *response) (*response, *errs.Error) {
	if len(next.docs) > maxConfigs {
		return nil, tooMany(len(next.docs))
	}
	var err error
	if out.did, err = c.setLocked(next); err != nil {
		return nil, errs.Invalid("models", err.Error())
	}
	c.epoch = epoch
	out.Applied, out.BundleConfigHash, out.ConfigVersion = true, c.Hash(), c.epoch
	out.BundleDocumentsHash = c.DocumentsHash()
	return out, nil
}

func tooMany(n int) *errs.Error {
	return errs.Invalidf("models", "Field 'models': %d models; at most %d are taken", n, maxConfigs)
}

// names reports whether a catalog has a model of this id, routable or not.
func names(c *catalog.Catalog, id string) bool {
	return slices.ContainsFunc(c.Models(), func(m *catalog.Model) bool { return m.ID == id })
}

// bundleLocked returns the bundle of an update: the server's own, with the adapters that the update
// says it has.
func (c *Configs) bundleLocked(u update) *catalog.Bundle {
	adapters, said := u.adapters[u.bundle]
	mine := c.now.bundle
	switch {
	case !said:
		return mine
	case mine != nil && mine.Name == u.bundle:
		b := *mine
		b.Adapters = adapters
		return &b
	case mine != nil:
		return mine // of another bundle's workers
	}
	return &catalog.Bundle{Name: u.bundle, Adapters: adapters}
}

func (c *conn) applyConfig(r *wire.Request) {
	b, ok := decode[wire.ApplyRequest](c, r)
	if !ok {
		return
	}
	out, err := c.server.opt.Configs.apply(update{
		models: []wire.ModelConfig{{ModelID: b.ModelID, ModelConfig: b.ModelConfig}},
		epoch:  b.Epoch, bundle: b.BundleID, adapters: b.BundleAdapters,
	})
	c.configured(r, out, err)
}

func (c *conn) replaceConfigs(r *wire.Request) {
	b, ok := decode[wire.ReplaceRequest](c, r)
	if !ok {
		return
	}
	out, err := c.server.opt.Configs.replace(update{
		models: b.Models, epoch: b.Epoch, bundle: b.BundleID, adapters: b.BundleAdapters,
	})
	c.configured(r, out, err)
}

func (c *conn) configured(r *wire.Request, out *response, err *errs.Error) {
	log := c.server.opt.Log
	if err != nil {
		log.Error("ipc: a configuration was not taken", "method", r.Method, "error", err.Message)
		c.refuse(r, err)
		return
	}
	for _, problem := range out.broken {
		log.Error("ipc: a model's document cannot be read; the model stays as it was", "error", problem)
	}
	log.Info("ipc: configuration taken", "epoch", out.ConfigVersion, "models", len(out.AppliedModels),
		"unsupported", len(out.UnsupportedModels), "added", len(out.did.Added),
		"changed", len(out.did.Changed), "removed", len(out.did.Removed), "hash", out.BundleConfigHash)
	c.reply(r, &out.ConfigResponse)
}
