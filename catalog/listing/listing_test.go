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
