package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/confighash"
)

// Bundle is one bundle file: the adapters that one worker image carries. If a model fits several
// bundles, the one with the lowest Priority wins.
type Bundle struct {
	Name     string
	Priority int
	Default  bool
	Engine   string // one of engines; "" = confighash.DefaultEngine
	Adapters []string
	Deps     map[string]any // Python requirements of the reference; kept, but unused here

	File string
}

// source is what sie-config adds when it sends a bundle; it says nothing of the bundle.
var bundleKeys = []string{"name", "priority", "default", "engine", "adapters", "deps", "source"}

// engines lists the engines that the reference's bundles name. This server treats them alike.
var engines = []string{confighash.DefaultEngine, "candle"}

const (
	defaultPriority   = 50
	maxBundleAdapters = 1000
)

// ParseBundle reads one bundle document. name is used only in messages. The error is a *Problems.
func ParseBundle(name string, src []byte) (*Bundle, error) {
	l := &problemList{file: name}
	root := parseDocument(src, l)
	if root == nil {
		return nil, l.err()
	}
	f := object(l, root, "", bundleKeys)
	b := &Bundle{Priority: defaultPriority, File: name}
	f.require("name")
	b.Name = f.checked("name", maxProfileBytes, func(s string) error {
		if slices.ContainsFunc([]rune(s), notHubRune) {
			return fmt.Errorf("a bundle name has letters, digits, '.', '_' and '-'; got %q", clip(s))
		}
		return nil
	})
	if p := f.number("priority", -1e6, 1e6); p != nil {
		if b.Priority = int(*p); float64(b.Priority) != *p {
			l.add(f.get("priority").line, "priority", "expected a whole number, got the number %v", *p)
		}
	}
	b.Default = truth(f.boolean("default"))
	b.Engine = f.checked("engine", maxProfileBytes, func(s string) error {
		if !contains(engines, s) {
			return fmt.Errorf("must be %s; got %q", orList(engines), clip(s))
		}
		return nil
	})
	f.require("adapters")
	b.Adapters = f.strings("adapters", maxBundleAdapters)
	r := modelReader{l: l}
	b.Deps = r.rawMap(f, "deps")
	if err := l.err(); err != nil {
		return nil, err
	}
	return b, nil
}

// Carries reports whether the bundle has the adapter. It compares modules as written.
func (b *Bundle) Carries(a AdapterPath) bool { return slices.Contains(b.Adapters, a.Module) }

// Bundles is a set of bundles in order of preference: lower priority first, then by name.
type Bundles []*Bundle

// Sort brings the bundles into their order of preference.
func (bs Bundles) Sort() {
	slices.SortFunc(bs, func(a, b *Bundle) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Name, b.Name))
	})
}

// ByName returns the named bundle, or an error that lists the available names.
func (bs Bundles) ByName(name string) (*Bundle, error) {
	names := make([]string, 0, len(bs))
	for _, b := range bs {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("bundle '%s' not found. Available: %s", clip(name), pythonList(names))
}

// Hash returns a hash of the set of bundles; see confighash.Bundles.
func (bs Bundles) Hash() string {
	list := make([]confighash.Bundle, len(bs))
	for i, b := range bs {
		list[i] = confighash.Bundle{
			Name: b.Name, Priority: b.Priority, Adapters: b.Adapters, Engine: b.Engine,
		}
	}
	return confighash.Bundles(list)
}

// InBundle returns the catalog of the ids that a bundle serves. These are the ids whose resolved
// adapter the bundle has. Each variant is checked separately, so "id" and "id:candle" may belong to
// different bundles.
func (c *Catalog) InBundle(b *Bundle) *Catalog {
	return c.subset(func(r *Resolved) bool { return b.Carries(r.Adapter) })
}
