package listing

import (
	"maps"
	"slices"
	"testing"

	"github.com/sie-engine/sie/catalog"
)

// A model that finds entities or classes is listed with what clients look for: text in, json out,
// no width, its profiles and revision, and a length only where its entry has one.
func TestExtractorsAreListed(t *testing.T) {
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		length   int
		profiles []string
	}{
		"urchade/gliner_small-v2.1":                   {0, []string{"default"}},
		"numind/NuNER_Zero":                           {384, []string{"default"}},
		"knowledgator/gliclass-edge-v3.0":             {1024, []string{"default", "multi-label"}},
		"knowledgator/gliclass-edge-v3.0:multi-label": {1024, []string{"default"}},
		"knowledgator/gliclass-instruct-edge-v1.0":    {1024, []string{"default", "multi-label"}},
	} {
		m, err := c.Resolve(id)
		if err != nil {
			t.Fatal(err)
		}
		info := Info(m)
		length := 0
		if info.MaxSequenceLength != nil {
			length = *info.MaxSequenceLength
		}
		if length != want.length || !slices.Equal(info.Outputs, []string{"json"}) ||
			!slices.Equal(info.Inputs, []string{"text"}) || info.Dims.Dense != 0 || info.Revision == nil ||
			!slices.Equal(slices.Sorted(maps.Keys(info.Profiles)), want.profiles) {
			t.Errorf("%s: %+v, length %d", id, info, length)
		}
	}
}

// The revision is that of the weights. A directory that stands in for a repository has none that is
// known.
func TestRevisionIsThatOfTheWeights(t *testing.T) {
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	const id = "sentence-transformers/all-MiniLM-L6-v2"
	of := func(c *catalog.Catalog) (info, other string) {
		m, err := c.Resolve(id)
		if err != nil {
			t.Fatal(err)
		}
		if i := Info(m); i.Revision != nil {
			info = *i.Revision
		}
		return info, Model(m).Revision
	}
	const pinned = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
	if info, other := of(all); info != pinned || other != pinned {
		t.Errorf("from the hub: %q and %q, expected %q", info, other, pinned)
	}
	for _, m := range all.Models() {
		if m.ID != id {
			continue
		}
		moved, err := m.WithWeights("/models/x")
		if err != nil {
			t.Fatal(err)
		}
		local, err := all.With(moved)
		if err != nil {
			t.Fatal(err)
		}
		if info, other := of(local); info != "" || other != "" {
			t.Errorf("from a directory: %q and %q, expected none", info, other)
		}
	}
}
