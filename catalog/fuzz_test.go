package catalog

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// FuzzModelYAML checks that any bytes give either a model whose every profile resolves, or at least
// one Problem with a file, a line and a message. The result must be the same the second time and
// stay within its bounds. A panic or a hang fails the test by itself.
func FuzzModelYAML(f *testing.F) {
	for _, fsys := range []struct {
		fs  fs.FS
		dir string
	}{{builtinModels, "models"}, {builtinBundles, "bundles"}} {
		entries, err := fs.ReadDir(fsys.fs, fsys.dir)
		if err != nil || len(entries) == 0 {
			f.Fatalf("no seeds in %s: %v", fsys.dir, err)
		}
		for _, e := range entries {
			src, err := fs.ReadFile(fsys.fs, fsys.dir+"/"+e.Name())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	for _, s := range []string{family, bomb(), "a: &a [*a]\n", "{", "? a\n: b\n", "<<: {a: 1}\n", "- - - x",
		"a: |\n  x\n\n", "&a : b", "!!x y", "%YAML 1.1\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		m, warnings, err := ParseModel("f.yaml", src)
		_, _, again := ParseModel("f.yaml", src)
		if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("two answers: %v and %v", err, again)
		}
		_, bundleErr := ParseBundle("f.yaml", src)
		checkProblems(t, bundleErr)
		if err != nil {
			checkProblems(t, err)
			return
		}
		if len(src) > maxFileBytes || len(m.Profiles) > maxProfiles || len(warnings) > maxProblemsPerFile {
			t.Fatalf("over a bound: %d bytes, %d profiles, %d warnings",
				len(src), len(m.Profiles), len(warnings))
		}
		c, err := build([]*Model{m})
		if err != nil {
			t.Fatalf("an accepted model does not resolve: %v", err)
		}
		if c.Len() < len(m.Profiles) {
			t.Fatalf("%d profiles give %d ids", len(m.Profiles), c.Len())
		}
		for _, r := range c.List() {
			if got, err := c.Resolve(r.ID); err != nil || got != r {
				t.Fatalf("%q does not resolve to itself: %v", r.ID, err)
			}
			_ = r.Usable()
			r.Runtime.FormatText("x", true, nil)
			r.AllowedOutputTypes(r.Runtime)
		}
		c.BundleConfigHash(&Bundle{Adapters: []string{m.Profiles[0].Adapter.Module}})
	})
}

func checkProblems(t *testing.T, err error) {
	if err == nil {
		return
	}
	var p *Problems
	if !errors.As(err, &p) || len(p.List) == 0 || len(p.List) > maxProblemsPerFile {
		t.Fatalf("not a bounded list of problems: %v", err)
	}
	for _, e := range p.List {
		if strings.HasPrefix(e.Msg, parserPanic) {
			t.Fatalf("the YAML library panics: %v", e)
		}
		if e.File != "f.yaml" || e.Line < 1 || e.Msg == "" {
			t.Fatalf("incomplete problem %+v", e)
		}
	}
}
