package configd

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
)

// maxExport bounds an export: gateways read no more.
const maxExport = 64 << 20

const defaultPool = "default"

// The sources of a model. Bundles have the first.
const (
	filesystem  = "filesystem"
	addedSource = "api"
)

// Content is a catalog, with what was added to it and all answers about both. It never changes.
type Content struct {
	base     *builtin
	added    *ledger.State
	entries  []*entry // of all ids, in their order
	size     int      // of an export, bounded from above
	sums     []*sum   // of the bundles
	history  history
	rendered *rendered
}

// Problems returns what is wrong with the models that were added: they are left out, or contradict
// a newer built-in model.
func (c *Content) Problems() (out []error) {
	for _, e := range c.entries {
		if e.problem != nil {
			out = append(out, fmt.Errorf("the added model %q: %w", e.id, e.problem))
		}
	}
	return out
}

// Models returns the number of models and of the ids that have a bundle.
func (c *Content) Models() (files, routable int) {
	for _, e := range c.entries {
		if e.model != nil {
			files++
		}
		for _, r := range e.ids {
			if len(c.carriers(r)) > 0 {
				routable++
			}
		}
	}
	return files, routable
}

// carriers returns the names of the bundles that carry a model, in order of preference.
func (c *Content) carriers(m *catalog.Resolved) []string {
	out := []string{}
	for _, b := range c.base.bundles {
		if b.Carries(m.Adapter) {
			out = append(out, b.Name)
		}
	}
	return out
}

// with returns the content of what is built in with what a state adds. It takes from c, which may
// be nil, what both have. The error says that the content is larger than gateways read.
func (b *builtin) with(state *ledger.State, c *Content) (*Content, error) {
	out := &Content{base: b, added: state, rendered: &rendered{}, history: history{name: rand.Text()}}
	added := slices.Sorted(maps.Keys(state.Models))
	for _, e := range b.entries {
		if _, over := state.Models[e.id]; !over {
			out.entries = append(out.entries, e)
		}
	}
	for _, id := range added {
		stored := state.Models[id]
		e := c.known(b, id, stored)
		if e == nil {
			var err error
			if e, err = b.entry(id, &stored); err != nil {
				return nil, err
			}
		}
		out.entries = append(out.entries, e)
	}
	slices.SortFunc(out.entries, func(a, b *entry) int { return strings.Compare(a.id, b.id) })
	for _, e := range out.entries {
		out.size += e.size()
	}
	for i := range b.bundles {
		out.sums = append(out.sums, &sum{entries: out.entries, at: i})
	}
	return out, out.check()
}

// known returns the entry that a content, which may be nil, has of an added document over the same
// built-in models, or nil.
func (c *Content) known(b *builtin, id string, stored ledger.Entry) *entry {
	if c == nil || c.base != b {
		return nil
	}
	e := search(c.entries, id)
	if e == nil || e.source != addedSource || e.stored != stored {
		return nil
	}
	return e
}

// changed returns the content of a state that differs from this one's in an id.
func (c *Content) changed(id string, state *ledger.State) (*Content, error) {
	var stored *ledger.Entry
	if e, ok := state.Models[id]; ok {
		stored = &e
	}
	now, err := c.base.entry(id, stored)
	if err != nil {
		return nil, err
	}
	out := *c
	out.added, out.rendered, out.history = state, &rendered{}, c.history.with(id)
	out.entries, out.sums = slices.Clone(c.entries), slices.Clone(c.sums)
	at, found := position(c.entries, id)
	var before *entry
	switch {
	case found && now != nil:
		before, out.entries[at] = out.entries[at], now
	case found:
		before = out.entries[at]
		out.entries = slices.Delete(out.entries, at, at+1)
	case now != nil:
		out.entries = slices.Insert(out.entries, at, now)
	}
	for i := range out.sums {
		out.sums[i] = &sum{entries: out.entries, at: i}
		if !before.carried(i) && !now.carried(i) {
			out.sums[i] = c.sums[i]
		}
	}
	if before != nil {
		out.size -= before.size()
	}
	if now != nil {
		out.size += now.size()
	}
	return &out, out.check()
}

// carried reports whether a bundle carries a profile of an entry, which may be nil.
func (e *entry) carried(bundle int) bool { return e != nil && e.parts != nil && e.parts[bundle] != nil }

// answered returns the same content with a state that differs in its answers alone.
func (c *Content) answered(state *ledger.State) *Content {
	out := *c
	out.added = state
	return &out
}

// exportHead bounds what an export holds beside its models, in bytes.
const exportHead = 1 << 20

// check refuses what gateways could not read.
func (c *Content) check() error {
	if c.size > maxExport-exportHead {
		return &tooLargeError{c.size}
	}
	return nil
}

// tooLargeError says that the export is larger than gateways read.
type tooLargeError struct{ bytes int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the models take %d bytes in an export; gateways read at most %d", e.bytes,
		maxExport-exportHead)
}

// model returns the model of an id, nil if there is none.
func (c *Content) model(id string) *catalog.Model {
	if e := search(c.entries, id); e != nil {
		return e.model
	}
	return nil
}

// builtin returns the built-in model of an id, nil if there is none.
func (c *Content) builtin(id string) *catalog.Model {
	if e := search(c.base.entries, id); e != nil {
		return e.model
	}
	return nil
}

// bundlesOf returns the names of the bundles that carry a profile of a model, in order of
// preference.
func (c *Content) bundlesOf(id string) []string {
	if e := search(c.entries, id); e != nil {
		return e.bundles
	}
	return nil
}

// resolved returns what an id stands for, or nil.
func (c *Content) resolved(id string) *catalog.Resolved {
	base := id
	if i := strings.LastIndexByte(id, ':'); i >= 0 {
		base = id[:i]
	}
	for _, name := range []string{id, base} {
		if e := search(c.entries, name); e != nil {
			for _, r := range e.ids {
				if r.ID == id {
					return r
				}
			}
		}
	}
	return nil
}

// twin returns the id of another model that differs from an id in case alone, "" for none.
func (c *Content) twin(id string) string {
	for _, e := range c.entries {
		if e.id != id && strings.EqualFold(e.id, id) {
			return e.id
		}
	}
	return ""
}
