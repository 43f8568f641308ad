package configd

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
)

// overlaid is the model of an entry of the ledger.
type overlaid struct {
	entry   ledger.Entry
	model   *catalog.Model // nil if the entry cannot be read
	problem error
}

// overlay fills in the catalog of the built-in models and of those that were added, and problems: a
// document that this build does not read is left out, and one that a newer built-in model
// contradicts wins. Nothing of it is lost in the ledger. before holds the models of an earlier
// content of the same base.
func (c *Content) overlay(before map[string]overlaid) (err error) {
	var models []*catalog.Model
	c.overlaid = make(map[string]overlaid, len(c.added.Models))
	for _, id := range slices.Sorted(maps.Keys(c.added.Models)) {
		o := overlaid{entry: c.added.Models[id]}
		if known, ok := before[id]; ok && known.entry == o.entry {
			o = known
		} else {
			o.model, o.problem = entryModel(builtin(c.base, id), id, o.entry)
		}
		c.overlaid[id] = o
		if o.problem != nil {
			c.problems = append(c.problems, fmt.Errorf("the added model %q: %w", id, o.problem))
		}
		if o.model != nil {
			models = append(models, o.model)
		}
	}
	c.catalog, err = c.base.With(models...)
	return err
}

// builtin returns the model of an id, nil if there is none.
func builtin(c *catalog.Catalog, id string) *catalog.Model {
	for _, m := range c.Models() {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// entryModel returns the model of an entry over the built-in one, which may be nil. With a model,
// the error is only what the entry contradicts.
func entryModel(base *catalog.Model, id string, e ledger.Entry) (*catalog.Model, error) {
	src := []byte(e.Document)
	var contradicts error
	if base != nil && !e.Whole {
		added, err := catalog.Document{Name: id, Source: src}.Content()
		if err != nil {
			return nil, err
		}
		whole := base.Document()
		if contradicts = catalog.Join(whole, added); contradicts != nil {
			catalog.Overlay(whole, added)
		}
		src = catalog.Text(whole)
	}
	m, _, err := catalog.ParseModel(id, src)
	if err == nil && m.ID != id {
		err = fmt.Errorf("its document is of %q", m.ID)
	}
	if err == nil {
		_, err = catalog.Of(m) // its profiles resolve, or it would take the others with it
	}
	if err != nil {
		return nil, errors.Join(contradicts, err)
	}
	return m, contradicts
}
