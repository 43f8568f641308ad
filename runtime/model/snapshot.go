package model

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/engine"
)

// snapshot is a catalog snapshot with the data derived from it for this host's devices. It is
// immutable and only replaced as a whole, so that a request sees one snapshot while it is planned.
type snapshot struct {
	catalog *catalog.Catalog
	keys    map[string][]string      // id → the weights keys of its models: one, or several of a union
	shared  map[string]sharedWeights // by key
	pinned  map[string]bool          // by key

	parts map[*catalog.Resolved][]*catalog.Resolved // of unions; see partsOf
}

// sharedWeights describes one weights key: the catalog entries that share its packed weights, and
// what they need.
type sharedWeights struct {
	first *catalog.Resolved // the first entry: gives the model its name and its batching options
	// the largest limit on a text's tokens that an entry sets; 0: the limit in the model's files,
	// if an entry sets none
	maxTokens int
	users     []*catalog.Resolved
}

// key returns the weights key of m: entries with equal keys share packed weights. A profile in
// float32 has separate weights if the operator leaves the precision open and float32 is not the
// device's default.
func (h *Host) key(m *catalog.Resolved) string {
	key := m.WeightsKey
	if task, ok := h.opt.Tasks[m.Family]; ok {
		key += " to " + task.String()
	}
	if j := m.Judging(); j.Format != "" {
		key += fmt.Sprintf(" with answers %q and %q", j.Yes, j.No)
	}
	if from := m.Model.HFTokenizerDependencies; len(from) > 0 {
		key += fmt.Sprintf(" with the tokenizer of %v", from) // in the order of the names
	}
	if m.Loadtime.DenseProjectionPath != "" {
		key += fmt.Sprintf(" through %q", m.Loadtime.DenseProjectionPath)
	}
	if h.runsInFloat32(m) && h.devices[0].about.DefaultCompute() != engine.ComputeF32 {
		key += " in float32"
	}
	return key
}

// runsInFloat32 reports whether m runs in float32 because its profile asks for it. It does not on
// devices without float32; no GPU has it.
func (h *Host) runsInFloat32(m *catalog.Resolved) bool {
	return h.wantsFloat32(m) && h.supports(engine.ComputeF32)
}

func (h *Host) wantsFloat32(m *catalog.Resolved) bool {
	return (h.opt.Precision == "" || h.opt.Precision == "auto") && m.Precision == "float32"
}

// newSnapshot returns a snapshot of c. It fails if a pinned id is not in the catalog.
func (h *Host) newSnapshot(c *catalog.Catalog) (*snapshot, error) {
	v := &snapshot{
		catalog: c,
		keys:    make(map[string][]string),
		shared:  make(map[string]sharedWeights),
		pinned:  make(map[string]bool),
		parts:   make(map[*catalog.Resolved][]*catalog.Resolved),
	}
	var wanted []string
	for _, m := range c.List() {
		if h.wantsFloat32(m) && !h.runsInFloat32(m) {
			wanted = append(wanted, m.ID)
		}
		if len(m.Members) == 0 {
			v.share(m.ID, h.key(m), m)
		}
	}
	for _, m := range c.List() { // their members after all that may be the first of a key
		if len(m.Members) == 0 {
			continue
		}
		v.parts[m] = v.unite(m)
		for _, one := range v.parts[m] {
			v.share(m.ID, h.key(one), one)
		}
	}
	for _, id := range h.opt.Pinned {
		if !v.pin(id) {
			return nil, fmt.Errorf("the pinned model %s is not in the catalog", id)
		}
	}
	for _, id := range h.pins {
		v.pin(id)
	}
	if len(wanted) > 0 {
		h.opt.Log.Info("profiles ask for float32, which this device does not have; they run in "+
			h.Precision(), "models", wanted)
	}
	return v, nil
}

// share notes that the entry m, which answers for the model id, needs the weights of key.
func (v *snapshot) share(id, key string, m *catalog.Resolved) {
	s, known := v.shared[key]
	switch {
	case !known:
		s = sharedWeights{first: m, maxTokens: m.MaxSequenceLength}
	case m.MaxSequenceLength == 0 || s.maxTokens == 0:
		s.maxTokens = 0
	default:
		s.maxTokens = max(s.maxTokens, m.MaxSequenceLength)
	}
	s.users = append(s.users, m)
	v.keys[id], v.shared[key] = append(v.keys[id], key), s
}

// pin pins the models of an id, and reports whether the catalog has it.
func (v *snapshot) pin(id string) bool {
	for _, key := range v.keys[id] {
		v.pinned[key] = true
	}
	return len(v.keys[id]) > 0
}

// Changes lists the model ids that SetCatalog added, changed or removed.
type Changes struct{ Added, Changed, Removed []string }

// None reports whether nothing changed.
func (c Changes) None() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// SetCatalog replaces the catalog and returns the changes. Requests that are already planned finish
// with the old catalog. Loaded weights whose entries changed or were removed are unloaded when
// their last request is done; failed loads of such weights are forgotten. On an error the old
// catalog stays.
func (h *Host) SetCatalog(c *catalog.Catalog) (Changes, error) {
	h.swap.Lock()
	defer h.swap.Unlock()
	v, err := h.newSnapshot(c)
	if err != nil {
		return Changes{}, err
	}
	old := h.snapshot.Swap(v)
	for key, before := range old.shared {
		if after, ok := v.shared[key]; !ok || !same(before.users, after.users) {
			h.models.Unload(key)
		}
	}
	h.sizes.Range(func(key, _ any) bool {
		if _, ok := v.shared[key.(string)]; !ok {
			h.sizes.Delete(key)
		}
		return true
	})
	var out Changes
	for _, m := range c.List() {
		if before, err := old.catalog.Resolve(m.ID); err != nil {
			out.Added = append(out.Added, m.ID)
		} else if !same([]*catalog.Resolved{before}, []*catalog.Resolved{m}) {
			out.Changed = append(out.Changed, m.ID)
		}
	}
	for _, m := range old.catalog.List() {
		if _, ok := v.keys[m.ID]; !ok {
			out.Removed = append(out.Removed, m.ID)
		}
	}
	return out, nil
}

// same reports whether two lists of entries are equal; the names and the text of the files that
// they come from do not count.
func same(a, b []*catalog.Resolved) bool {
	return slices.EqualFunc(a, b, func(a, b *catalog.Resolved) bool {
		if a == b {
			return true
		}
		x, y := *a, *b
		x.Model, y.Model = withoutText(x.Model), withoutText(y.Model)
		return reflect.DeepEqual(x, y)
	})
}

func withoutText(m *catalog.Model) *catalog.Model {
	if m == nil {
		return nil
	}
	return m.WithoutText()
}
