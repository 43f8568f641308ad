package model

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// view is a catalog with what follows from it for this worker's devices. It is never changed, only
// replaced as a whole: a request sees one view from beginning to end of its plan.
type view struct {
	catalog *catalog.Catalog
	keys    map[string]string // by id: the key of its weights
	copies  map[string]copyOf // by key
	pinned  map[string]bool   // by key
}

// copyOf is a set of packed weights as the catalog's entries that share it see it.
type copyOf struct {
	first     *catalog.Resolved // names it, and says how it is batched
	maxTokens int               // of one text, the most that an entry asks for; 0 = as the files say, which an entry wants
	users     []*catalog.Resolved
}

// key names the packed weights behind m: equal keys share a copy. A profile in float32 has a copy
// of its own where the operator leaves the precision open and the device's best is another.
func (h *Host) key(m *catalog.Resolved) string {
	key := m.WeightsKey
	if task, ok := h.opt.Tasks[m.Family]; !ok {
		key += " to nothing"
	} else if task != arch.Embed {
		key += " to " + task.String()
	}
	if h.inFloat32(m) && h.devices[0].about.DefaultCompute() != engine.ComputeF32 {
		key += " in float32"
	}
	return key
}

// inFloat32 says whether m's profile decides on float32: it is a wish, and no GPU has it.
func (h *Host) inFloat32(m *catalog.Resolved) bool {
	return h.wishesFloat32(m) && h.supports(engine.ComputeF32)
}

func (h *Host) wishesFloat32(m *catalog.Resolved) bool {
	return (h.opt.Precision == "" || h.opt.Precision == "auto") && m.Precision == "float32"
}

// newView makes a view of c. It fails when an id that is to be pinned is not there.
func (h *Host) newView(c *catalog.Catalog) (*view, error) {
	v := &view{catalog: c, keys: make(map[string]string), copies: make(map[string]copyOf), pinned: make(map[string]bool)}
	var wishes []string
	for _, m := range c.List() {
		if h.wishesFloat32(m) && !h.inFloat32(m) {
			wishes = append(wishes, m.ID)
		}
		key := h.key(m)
		s, known := v.copies[key]
		switch {
		case !known:
			s = copyOf{first: m, maxTokens: m.MaxSequenceLength}
		case m.MaxSequenceLength == 0 || s.maxTokens == 0:
			s.maxTokens = 0
		default:
			s.maxTokens = max(s.maxTokens, m.MaxSequenceLength)
		}
		s.users = append(s.users, m)
		v.keys[m.ID], v.copies[key] = key, s
	}
	for _, id := range h.opt.Pinned {
		key, ok := v.keys[id]
		if !ok {
			return nil, fmt.Errorf("the pinned model %s is not in the catalog", id)
		}
		v.pinned[key] = true
	}
	if len(wishes) > 0 {
		h.opt.Log.Info("profiles ask for float32, which this device does not have; they run in "+h.Precision(), "models", wishes)
	}
	return v, nil
}

// Changes is what SetCatalog did, in ids.
type Changes struct{ Added, Changed, Removed []string }

// None reports that nothing changed.
func (c Changes) None() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// SetCatalog replaces the catalog. Requests that were planned finish as they began; loaded weights
// whose entries changed or went are unloaded when the last of them is done, and a failed load of
// such is forgotten. On an error the old catalog stays.
func (h *Host) SetCatalog(c *catalog.Catalog) (Changes, error) {
	h.swap.Lock()
	defer h.swap.Unlock()
	v, err := h.newView(c)
	if err != nil {
		return Changes{}, err
	}
	old := h.view.Swap(v)
	for key, before := range old.copies {
		if after, ok := v.copies[key]; !ok || !same(before.users, after.users) {
			h.models.Unload(key)
		}
	}
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

// same reports whether two lists of entries say the same, whichever files they stand in.
func same(a, b []*catalog.Resolved) bool {
	return slices.EqualFunc(a, b, func(a, b *catalog.Resolved) bool {
		if a == b {
			return true
		}
		x, y := *a, *b
		x.Model, y.Model = withoutFile(x.Model), withoutFile(y.Model)
		return reflect.DeepEqual(x, y)
	})
}

func withoutFile(m *catalog.Model) *catalog.Model {
	if m == nil {
		return nil
	}
	c := *m
	c.File = ""
	return &c
}
