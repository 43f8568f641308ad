package configd

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/confighash"
)

// entry is one model with all that follows from it alone, so that a change of another model leaves
// it as it is. It never changes.
type entry struct {
	id     string
	model  *catalog.Model // nil: what was added cannot be read, and nothing of the id is built in
	ids    []*catalog.Resolved
	source string
	pool   string

	stored  ledger.Entry // of an added model
	problem error        // what is wrong with that

	bundles  []string // that carry a profile, in order of preference
	parts    [][]byte // what the config hash of each bundle covers, nil for none
	poolPart []byte
	export   []byte            // as the export has it
	sum      [sha256.Size]byte // of export
}

// exportedModel is a model in an export.
type exportedModel struct {
	ID      string          `json:"model_id"`
	Config  json.RawMessage `json:"model_config"`
	YAML    string          `json:"raw_yaml"`
	Bundles []string        `json:"affected_bundles"`
	Pool    string          `json:"pool"`
	Source  string          `json:"source"`
	// Hashes are the model's config hashes by bundle; the reference has no such key.
	Hashes map[string]string `json:"model_config_hashes"`
	// Document is the hash of all that Config says; the reference has no such key.
	Document string `json:"model_document_hash"`
}

// fill adds what follows from the model.
func (e *entry) fill(bundles catalog.Bundles) error {
	e.pool = poolOf(e.model)
	e.poolPart = confighash.PoolPart(e.id, e.pool)
	e.parts = make([][]byte, len(bundles))
	e.bundles = []string{}
	for i, b := range bundles {
		if e.parts[i] = e.model.ConfigPart(b); e.parts[i] != nil {
			e.bundles = append(e.bundles, b.Name)
		}
	}
	content := confighash.Canonical(e.model.Document(), confighash.UTF8)
	text, err := encode(exportedModel{ID: e.id, YAML: string(e.model.Source()), Pool: e.pool,
		Source: e.source, Config: content, Bundles: e.bundles, Hashes: e.hashes(bundles),
		Document: confighash.Document(content)})
	e.export, e.sum = text, sha256.Sum256(text)
	return err
}

// hashes returns the model's config hashes by bundle.
func (e *entry) hashes(bundles catalog.Bundles) map[string]string {
	out := map[string]string{}
	for i, b := range bundles {
		if part := e.parts[i]; part != nil {
			out[b.Name] = confighash.OfParts(slices.Values([][]byte{part}))
		}
	}
	return out
}

// size bounds what the model takes in an export, in bytes.
func (e *entry) size() int {
	if e.model == nil {
		return 0
	}
	return len(e.export) + 1 + len(e.bundles)*(len(e.pool)+sha256.Size*2+8) // its pool's hashes
}

// poolOf returns the pool whose workers run a model.
func poolOf(m *catalog.Model) string { return cmp.Or(strings.ToLower(m.Pool), defaultPool) }

// builtin is what a sie-config has without what was added to it. It never changes.
type builtin struct {
	bundles     catalog.Bundles
	hash        string // of bundles
	entries     []*entry
	bundleList  []byte
	bundleFiles map[string][]byte
}

// newBuiltin returns the content of files.
func newBuiltin(c *catalog.Catalog, bundles catalog.Bundles) (*builtin, error) {
	b := &builtin{bundles: bundles, hash: bundles.Hash(), bundleFiles: map[string][]byte{}}
	ids := map[string][]*catalog.Resolved{}
	for _, r := range c.List() {
		ids[r.BaseID] = append(ids[r.BaseID], r)
	}
	for _, m := range c.Models() {
		e := &entry{id: m.ID, model: m, ids: ids[m.ID], source: filesystem}
		if err := e.fill(bundles); err != nil {
			return nil, err
		}
		b.entries = append(b.entries, e)
	}
	return b, b.renderBundles()
}

// entry returns the entry of an id with what was added under it, nil for nothing: a document that
// this build does not read leaves what is built in, and one that a newer built-in model contradicts
// wins. It is nil if there is nothing at all.
func (b *builtin) entry(id string, added *ledger.Entry) (*entry, error) {
	base := search(b.entries, id)
	if added == nil {
		return base, nil
	}
	e := &entry{id: id, stored: *added, source: addedSource}
	var below *catalog.Model
	if base != nil {
		below = base.model
	}
	e.model, e.ids, e.problem = entryModel(below, id, *added)
	if e.model == nil && base != nil {
		e.model, e.ids = base.model, base.ids
	}
	if e.model == nil {
		return e, nil
	}
	return e, e.fill(b.bundles)
}

// search returns the entry of an id among entries in the order of ids, or nil.
func search(entries []*entry, id string) *entry {
	if i, ok := position(entries, id); ok {
		return entries[i]
	}
	return nil
}

// position returns where the entry of an id is or belongs.
func position(entries []*entry, id string) (int, bool) {
	return slices.BinarySearchFunc(entries, id,
		func(e *entry, id string) int { return cmp.Compare(e.id, id) })
}

// entryModel returns the model of an added entry over the built-in one, which may be nil, and its
// ids. With a model, the error is only what the entry contradicts.
func entryModel(base *catalog.Model, id string, e ledger.Entry) (*catalog.Model, []*catalog.Resolved, error) {
	src := []byte(e.Document)
	var contradicts error
	if base != nil && !e.Whole {
		added, err := catalog.Document{Name: id, Source: src}.Content()
		if err != nil {
			return nil, nil, err
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
	if err != nil {
		return nil, nil, errors.Join(contradicts, err)
	}
	one, err := catalog.Of(m) // its profiles resolve, or it would take the others with it
	if err != nil {
		return nil, nil, errors.Join(contradicts, err)
	}
	return m, one.List(), contradicts
}
