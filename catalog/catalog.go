package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/confighash"
)

// Catalog is a set of models and their ids.
type Catalog struct {
	models   []*Model    // by ID
	resolved []*Resolved // by ID
	byID     map[string]*Resolved
	warnings []Problem
}

// NotFoundError reports a model id that the catalog does not have. Suggestions holds up to three
// near ids. Its text is meant for the client.
type NotFoundError struct {
	ID          string
	Suggestions []string
	Why         string // what Later says of the id
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("Model '%s' not found", clip(e.ID))
	if e.Why != "" {
		return text + ": " + e.Why
	}
	if len(e.Suggestions) > 0 {
		text += " Did you mean '" + strings.Join(e.Suggestions, "', '") + "'?"
	}
	return text
}

// build resolves the models. A repeated id is an error.
func build(models []*Model) (*Catalog, error) {
	c := &Catalog{models: slices.Clone(models), byID: map[string]*Resolved{}}
	slices.SortFunc(c.models, func(a, b *Model) int { return strings.Compare(a.ID, b.ID) })
	for i, m := range c.models {
		if i > 0 && c.models[i-1].ID == m.ID {
			return nil, &Problems{List: []Problem{{File: m.File, Line: 1, Key: "sie_id",
				Msg: fmt.Sprintf("model %q is already defined by %s", clip(m.ID), c.models[i-1].File)}}}
		}
		rs, err := resolveAll(m)
		if err != nil {
			return nil, &Problems{List: []Problem{{File: m.File, Line: 1, Msg: err.Error()}}}
		}
		c.resolved = append(c.resolved, rs...)
	}
	c.index()
	return c, nil
}

// Of returns the catalog of these models. A repeated id is an error.
func Of(models ...*Model) (*Catalog, error) { return build(models) }

// Union returns the catalog of the models of others, which have no id in common. It takes what they
// know of their models.
func Union(catalogs ...*Catalog) (*Catalog, error) {
	out := &Catalog{byID: map[string]*Resolved{}}
	for _, c := range catalogs {
		out.models = append(out.models, c.models...)
		out.resolved = append(out.resolved, c.resolved...)
		out.warnings = append(out.warnings, c.warnings...)
	}
	slices.SortFunc(out.models, func(a, b *Model) int { return strings.Compare(a.ID, b.ID) })
	for i, m := range out.models {
		if i > 0 && out.models[i-1].ID == m.ID {
			return nil, fmt.Errorf("two catalogs have the model %q", clip(m.ID))
		}
	}
	out.index()
	return out, nil
}

func (c *Catalog) index() {
	slices.SortFunc(c.resolved, func(a, b *Resolved) int { return strings.Compare(a.ID, b.ID) })
	for _, r := range c.resolved {
		c.byID[r.ID] = r
	}
}

// subset returns the resolved ids for which keep returns true, and their models.
func (c *Catalog) subset(keep func(*Resolved) bool) *Catalog {
	out := &Catalog{byID: map[string]*Resolved{}, warnings: c.warnings}
	has := map[*Model]bool{}
	for _, r := range c.resolved {
		if keep(r) {
			out.resolved = append(out.resolved, r)
			has[r.Model] = true
		}
	}
	for _, m := range c.models {
		if has[m] {
			out.models = append(out.models, m)
		}
	}
	out.index()
	return out
}

// With returns a catalog to which the given models are added, for example from AdHoc or an admin
// API. A given model replaces a model with the same id. Ids removed by Select stay out, unless they
// belong to a given model.
func (c *Catalog) With(models ...*Model) (*Catalog, error) {
	added, err := build(models)
	if err != nil {
		return nil, err
	}
	replaced := map[string]bool{}
	for _, m := range added.models {
		replaced[m.ID] = true
	}
	out := c.subset(func(r *Resolved) bool { return !replaced[r.BaseID] })
	out.resolved = append(out.resolved, added.resolved...)
	out.models = append(out.models, added.models...)
	slices.SortFunc(out.models, func(a, b *Model) int { return strings.Compare(a.ID, b.ID) })
	out.index()
	return out, nil
}

// Resolve returns the model with exactly this id, or a *NotFoundError with suggestions. Ids are
// case-sensitive. A resolved model may still not be runnable here: see Resolved.Usable.
func (c *Catalog) Resolve(id string) (*Resolved, error) {
	if r, ok := c.byID[id]; ok {
		return r, nil
	}
	if why := Later(id); why != "" {
		return nil, &NotFoundError{ID: id, Why: why}
	}
	return nil, &NotFoundError{ID: id, Suggestions: c.Suggest(id)}
}

// ResolveOpenAI resolves an id of the OpenAI-style routes, where "org__name" also means "org/name".
func (c *Catalog) ResolveOpenAI(id string) (*Resolved, error) {
	if r, ok := c.byID[id]; ok {
		return r, nil
	}
	r, err := c.Resolve(DecodeID(id))
	var missing *NotFoundError
	if errors.As(err, &missing) {
		missing.ID = id // the error names what the client sent
	}
	return r, err
}

// DecodeID replaces the first "__" of an id without a slash by a slash. "org__name:profile" becomes
// "org/name:profile". Any other id is returned unchanged.
func DecodeID(id string) string {
	org, name, ok := strings.Cut(id, "__")
	if !ok || org == "" || name == "" || strings.Contains(id, "/") {
		return id
	}
	return org + "/" + name
}

// List returns every routable id in byte order, bases before their variants.
func (c *Catalog) List() []*Resolved { return c.resolved }

// Models returns the models of all files, ordered by id.
func (c *Catalog) Models() []*Model { return c.models }

// Len returns the number of routable ids.
func (c *Catalog) Len() int { return len(c.resolved) }

// Warnings lists the options in the files that have no effect in this build.
func (c *Catalog) Warnings() []Problem { return c.warnings }

// HashModels returns the models in the form that the config hash covers. It includes every profile
// of every model, routable or not, with inheritance applied.
func (c *Catalog) HashModels() []confighash.Model {
	out := make([]confighash.Model, len(c.models))
	for i, m := range c.models {
		out[i] = m.hashed()
	}
	return out
}

// hashed returns the model in the form that the config hash covers.
func (m *Model) hashed() confighash.Model {
	out := confighash.Model{ID: m.ID, Revision: m.HFRevision}
	for _, written := range m.Profiles {
		p, err := m.resolved(written.Name)
		if err != nil {
			continue // build has refused such models
		}
		out.Profiles = append(out.Profiles, confighash.Profile{
			Name: p.Name, AdapterPath: p.Adapter.String(), MaxBatchTokens: p.MaxBatchTokens,
			ComputePrecision: string(p.ComputePrecision), Loadtime: p.Loadtime, Runtime: p.Runtime,
		})
	}
	return out
}

// BundleConfigHash returns the config hash of the catalog for one bundle.
func (c *Catalog) BundleConfigHash(b *Bundle) string {
	return confighash.BundleConfig(c.HashModels(), b.Adapters)
}

// ConfigHash returns the config hash of one model in one bundle: that of a catalog with this
// model alone. It is "" if the bundle carries no profile of the model. A change of another model
// does not change it.
func (m *Model) ConfigHash(b *Bundle) string {
	return confighash.ModelConfig(m.hashed(), b.Adapters)
}

// ConfigPart returns what the config hash of a catalog covers of one model in one bundle, for
// confighash.OfParts; nil if the bundle carries no profile of the model.
func (m *Model) ConfigPart(b *Bundle) []byte { return confighash.Part(m.hashed(), b.Adapters) }
