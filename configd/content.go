package configd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/confighash"
)

// maxExport bounds an export: gateways read no more.
const maxExport = 64 << 20

const defaultPool = "default"

// The sources of a model. Bundles have the first.
const (
	filesystem = "filesystem"
	added      = "api"
)

// Content is a catalog, with what was added to it and all answers about both. It never changes.
type Content struct {
	base     *catalog.Catalog // what is built in
	added    *ledger.State
	overlaid map[string]overlaid
	catalog  *catalog.Catalog // both
	bundles  catalog.Bundles
	problems []error            // of what was added
	hashed   []confighash.Model // in the order of catalog.Models

	epoch, models, bundleList []byte
	export                    []byte // after its generated_at
	bundleFiles               map[string][]byte
	modelFiles                map[string][]byte // by id, of models and of routable profiles
	exported                  map[*catalog.Model]exportedModel
}

// Problems returns what is wrong with the models that were added: they are left out, or contradict
// a newer built-in model.
func (c *Content) Problems() []error { return c.problems }

// Models returns the number of models and of the ids that have a bundle.
func (c *Content) Models() (files, routable int) {
	for _, m := range c.catalog.List() {
		if len(c.carriers(m)) > 0 {
			routable++
		}
	}
	return len(c.catalog.Models()), routable
}

// carriers returns the names of the bundles that carry a model, in order of preference.
func (c *Content) carriers(m *catalog.Resolved) []string {
	out := []string{}
	for _, b := range c.bundles {
		if b.Carries(m.Adapter) {
			out = append(out, b.Name)
		}
	}
	return out
}

// Build renders the answers about a catalog to which nothing was added. The error says that it is
// larger than gateways read.
func Build(base *catalog.Catalog, bundles catalog.Bundles) (*Content, error) {
	return (&Content{base: base, bundles: bundles}).With(&ledger.State{})
}

// With returns the content of the same catalog with other models added.
func (c *Content) With(state *ledger.State) (*Content, error) {
	out := &Content{base: c.base, added: state, bundles: c.bundles, bundleFiles: map[string][]byte{},
		modelFiles: map[string][]byte{}, exported: map[*catalog.Model]exportedModel{}}
	if err := out.overlay(c.overlaid); err != nil {
		return nil, err
	}
	out.hashed = out.catalog.HashModels()
	if err := errorOf(out.renderModels(), out.renderBundles(), out.renderExport(c.exported)); err != nil {
		return nil, err
	}
	if len(out.export) > maxExport {
		return nil, &tooLargeError{len(out.export)}
	}
	return out, nil
}

// tooLargeError says that the export is larger than gateways read.
type tooLargeError struct{ bytes int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the models take %d bytes in an export; gateways read at most %d", e.bytes, maxExport)
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type listedModel struct {
	ID       string   `json:"model_id"`
	Profiles []string `json:"profiles"`
	Source   string   `json:"source"`
}

// renderModels renders the list of ids with a bundle, and the document of each id.
func (c *Content) renderModels() (err error) {
	list := struct {
		Models []listedModel `json:"models"`
	}{Models: []listedModel{}}
	for _, m := range c.catalog.List() {
		carriers := c.carriers(m)
		if len(carriers) == 0 {
			continue
		}
		list.Models = append(list.Models, listedModel{m.ID, profiles(m), c.source(m.BaseID)})
		if m.ID != m.BaseID {
			c.modelFiles[m.ID], err = document(map[string]any{
				"sie_id": m.ID, "source": c.source(m.BaseID), "bundles": carriers,
			})
			if err != nil {
				return err
			}
		}
	}
	for _, m := range c.catalog.Models() {
		c.modelFiles[m.ID] = m.Source()
	}
	c.models, err = encode(list)
	return err
}

// source says where a base model is from.
func (c *Content) source(id string) string {
	if _, ok := c.added.Models[id]; ok {
		return added
	}
	return filesystem
}

// profiles returns the names of the profiles that an id stands for, sorted.
func profiles(m *catalog.Resolved) []string {
	if m.ID != m.BaseID {
		return []string{m.Profile}
	}
	out := make([]string, 0, len(m.Model.Profiles))
	for _, p := range m.Model.Profiles {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

type listedBundle struct {
	ID       string `json:"bundle_id"`
	Engine   string `json:"engine"`
	Priority int    `json:"priority"`
	Adapters int    `json:"adapter_count"`
	Source   string `json:"source"`
}

// renderBundles renders the list of bundles, each bundle, and the hashes of the epoch.
func (c *Content) renderBundles() (err error) {
	list := struct {
		Bundles []listedBundle `json:"bundles"`
	}{Bundles: []listedBundle{}}
	var states []confighash.BundleState
	for _, b := range c.bundles {
		engine := cmp.Or(b.Engine, confighash.DefaultEngine)
		list.Bundles = append(list.Bundles,
			listedBundle{b.Name, engine, b.Priority, len(b.Adapters), filesystem})
		c.bundleFiles[b.Name], err = document(map[string]any{
			"name": b.Name, "engine": engine, "priority": b.Priority, "source": filesystem,
			"adapters": b.Adapters,
		})
		if err != nil {
			return err
		}
		state := confighash.BundleState{Name: b.Name, Hash: c.bundleHash(b),
			Pools: map[string]string{}}
		for i, m := range c.catalog.Models() {
			if confighash.ModelConfig(c.hashed[i], b.Adapters) != "" {
				state.Pools[m.ID] = poolOf(m)
			}
		}
		states = append(states, state)
	}
	if c.bundleList, err = encode(list); err != nil {
		return err
	}
	c.epoch, err = encode(struct {
		Epoch   uint64 `json:"epoch"`
		Bundles string `json:"bundles_hash"`
		Configs string `json:"bundle_config_hashes_hash"`
	}{c.added.Epoch, c.bundles.Hash(), confighash.BundleConfigs(states)})
	return err
}

// bundleHash returns the config hash of a bundle.
func (c *Content) bundleHash(b *catalog.Bundle) string {
	return confighash.BundleConfig(c.hashed, b.Adapters)
}

// poolHashes returns the config hashes of a bundle by pool, without pools that have none of its
// models.
func (c *Content) poolHashes(b *catalog.Bundle) map[string]string {
	byPool := map[string][]confighash.Model{}
	for i, m := range c.catalog.Models() {
		byPool[poolOf(m)] = append(byPool[poolOf(m)], c.hashed[i])
	}
	out := map[string]string{}
	for pool, models := range byPool {
		if hash := confighash.BundleConfig(models, b.Adapters); hash != "" {
			out[pool] = hash
		}
	}
	return out
}

// poolOf returns the pool whose workers run a model.
func poolOf(m *catalog.Model) string { return cmp.Or(strings.ToLower(m.Pool), defaultPool) }

type exportedModel struct {
	ID      string          `json:"model_id"`
	Config  json.RawMessage `json:"model_config"`
	YAML    string          `json:"raw_yaml"`
	Bundles []string        `json:"affected_bundles"`
	Pool    string          `json:"pool"`
	Source  string          `json:"source"`
	// Hashes are the model's config hashes by bundle; the reference has no such key.
	Hashes map[string]string `json:"model_config_hashes"`
}

// renderExport renders everything that a gateway needs. before holds the entries of an earlier
// export.
func (c *Content) renderExport(before map[*catalog.Model]exportedModel) (err error) {
	out := struct {
		Hashes     map[string]string            `json:"bundle_config_hashes"`
		PoolHashes map[string]map[string]string `json:"bundle_pool_config_hashes"`
		Adapters   map[string][]string          `json:"bundle_adapters"`
		Models     []exportedModel              `json:"models"`
	}{map[string]string{}, map[string]map[string]string{}, map[string][]string{}, []exportedModel{}}
	for _, b := range c.bundles {
		out.Hashes[b.Name], out.PoolHashes[b.Name] = c.bundleHash(b), c.poolHashes(b)
		out.Adapters[b.Name] = b.Adapters
	}
	for _, m := range c.catalog.Models() {
		x, known := before[m]
		if !known {
			x = c.exportModel(m)
		}
		c.exported[m] = x
		out.Models = append(out.Models, x)
	}
	c.export, err = encode(out)
	return err
}

// exportModel returns the entry of a model.
func (c *Content) exportModel(m *catalog.Model) exportedModel {
	x := exportedModel{ID: m.ID, YAML: string(m.Source()), Pool: poolOf(m), Source: c.source(m.ID),
		Config:  confighash.Canonical(m.Document(), confighash.UTF8),
		Bundles: []string{}, Hashes: map[string]string{}}
	for _, b := range c.bundles {
		if hash := m.ConfigHash(b); hash != "" {
			x.Bundles = append(x.Bundles, b.Name)
			x.Hashes[b.Name] = hash
		}
	}
	return x
}

// Export returns the whole export, made at a time in RFC 3339.
func (c *Content) exportAt(time string) []byte {
	head := `{"snapshot_version":1,"epoch":` + strconv.FormatUint(c.added.Epoch, 10) +
		`,"generated_at":` + strconv.Quote(time) + ","
	return append(append(make([]byte, 0, len(head)+len(c.export)), head...), c.export[1:]...)
}

// encode returns v as JSON without a line break at its end.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// document returns v as YAML as the reference writes it: keys sorted, lists at their key's column.
func document(v map[string]any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
