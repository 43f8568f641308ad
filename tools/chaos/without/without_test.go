package without

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/tools/chaos/row"
)

const top = "../../.."

// Each patch fits the tree as it is, each judge exists, and each fix has one.
func TestTheTableFitsTheTree(t *testing.T) {
	functions := map[string][]string{}
	names := map[string]bool{}
	rows := map[string]bool{}
	for _, r := range row.Table() {
		rows[r.Topology+":"+r.Name] = true
	}
	for _, f := range Fixes() {
		if names[f.Name] || f.Name == "" || strings.ContainsAny(f.Name, " /") || f.What == "" {
			t.Errorf("fix %q: its name is there twice or cannot be a folder's, or it says nothing", f.Name)
		}
		names[f.Name] = true
		if _, err := patched(top, f.Patches); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if len(f.Tests) == 0 && f.Row == "" {
			t.Errorf("%s: nothing judges it", f.Name)
		}
		if (f.Row == "") != (f.Sees == "") || f.Row != "" && !rows[f.Row] {
			t.Errorf("%s: there is no row %q, or it is not said what it sees", f.Name, f.Row)
		}
		for _, j := range f.Tests {
			if functions[j.Package] == nil {
				functions[j.Package] = testsOf(t, filepath.Join(top, j.Package))
			}
			name, _, _ := strings.Cut(j.Name, "/")
			if !slices.Contains(functions[j.Package], name) {
				t.Errorf("%s: there is no test %v", f.Name, j)
			}
		}
	}
	if len(names) < 40 {
		t.Errorf("%d fixes; is this the whole table?", len(names))
	}
}

// testsOf returns the test functions of a package.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// A patch that fits nowhere, or twice, or changes nothing, or makes no Go, is refused and names its
// file.
func TestPatchesThatDoNotFit(t *testing.T) {
	const text = "package p\n\nvar a = 1\nvar b = 1\n"
	for name, c := range map[string]struct {
		patch Patch
		want  string // of the error; "" for none
	}{
		"fits":            {Patch{"f.go", "a = 1", "a = 2"}, ""},
		"nowhere":         {Patch{"f.go", "c = 1", "c = 2"}, "0 times"},
		"twice":           {Patch{"f.go", "= 1", "= 2"}, "2 times"},
		"changes nothing": {Patch{"f.go", "a = 1", "a = 1"}, "changes nothing"},
		"empty":           {Patch{"f.go", "", "x"}, "changes nothing"},
		"no Go":           {Patch{"f.go", "a = 1", "a = ("}, "not Go"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.patch.apply(text)
			if (err == nil) != (c.want == "") {
				t.Fatalf("%q, %v", got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "f.go")) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err == nil && got != strings.Replace(text, "a = 1", "a = 2", 1) {
				t.Errorf("%q", got)
			}
		})
	}
}

// tree writes a module whose only function has a fix, and tests of it.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.24\n",
		"p/p.go": "package p\n\nfunc Fixed() bool {\n\tok := true\n\treturn ok\n}\n",
		"p/q.go": "package p\n\nvar Unused = 1\n",
		"p/p_test.go": `package p

import "testing"

func TestFix(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		if !Fixed() {
			t.Error("the fix is not there")
		}
	})
}
func TestOther(t *testing.T) {}
func TestBroken(t *testing.T) { t.Error("always red") }
func TestCrash(t *testing.T) {
	if !Fixed() {
		panic("no fix")
	}
}
`,
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A judge is red only if its test fails without the fix and holds with it. What proves nothing is
// not red, and what cannot be built or run is an error. The tree is as before.
func TestJudges(t *testing.T) {
	dir := tree(t)
	out := Patch{"p/p.go", "ok := true", "ok := false"}
	for name, c := range map[string]struct {
		patch Patch
		test  string
		red   bool
		why   string
		err   string
	}{
		"red":             {out, "TestFix", true, "the fix is not there", ""},
		"red in a part":   {out, "TestFix/part", true, "the fix is not there", ""},
		"a crash":         {out, "TestCrash", true, "panic: no fix", ""},
		"blind test":      {out, "TestOther", false, "the test holds", ""},
		"useless fix":     {Patch{"p/q.go", "1", "2"}, "TestFix", false, "the test holds", ""},
		"always red":      {out, "TestBroken", false, "with the fix too: always red", ""},
		"no such test":    {out, "TestNone", false, "", "ran no test"},
		"no such part":    {out, "TestFix/none", false, "", "ran no test"},
		"does not build":  {Patch{"p/p.go", "ok := true", "ok := 1"}, "TestFix", false, "", "go test: exit"},
		"does not fit":    {Patch{"p/p.go", "gone", "x"}, "TestFix", false, "", "0 times"},
		"no such package": {Patch{"q/p.go", "a", "b"}, "TestFix", false, "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			var told []Verdict
			b := Bench{Top: dir, Dir: t.TempDir(), Log: io.Discard,
				Told: func(v Verdict) { told = append(told, v) }}
			green, err := b.Run(t.Context(), []Fix{{
				Name: "fix", What: "x", Patches: []Patch{c.patch}, Tests: []Test{{"p", c.test}},
			}})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || len(told) != 0 {
					t.Errorf("%v and %+v, want %q", err, told, c.err)
				}
				return
			}
			if err != nil || len(told) != 1 || told[0].Red != c.red ||
				green != map[bool]int{false: 1}[c.red] ||
				!strings.Contains(told[0].Why, c.why) {
				t.Errorf("%v, %d green, %+v; want red %v, %q", err, green, told, c.red, c.why)
			}
		})
	}
	text, err := os.ReadFile(filepath.Join(dir, "p/p.go"))
	if err != nil || !strings.Contains(string(text), "ok := true") {
		t.Errorf("the tree was changed: %q, %v", text, err)
	}
}

// A row is red only where it breaks what the fix is for.
func TestRowsAsJudges(t *testing.T) {
	dir := tree(t)
	main := []byte("package main\n\nfunc main() {}\n")
	for _, p := range pure {
		if err := os.MkdirAll(filepath.Join(dir, "cmd", p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cmd", p, "main.go"), main, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		broken []string
		err    error
		red    bool
		why    string
	}{
		"sees it":       {[]string{"other", "lost: request 1"}, nil, true, "lost: request 1"},
		"sees another":  {[]string{"wrong: request 1"}, nil, false, `nothing broken says "lost"`},
		"holds":         {nil, nil, false, "the row holds"},
		"cannot be run": {nil, errors.New("no cluster"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var told []Verdict
			b := Bench{Top: dir, Dir: t.TempDir(), Bin: dir, Log: io.Discard,
				Told: func(v Verdict) { told = append(told, v) },
				Row: func(_ context.Context, programs, row string) ([]string, error) {
					for _, p := range append([]string{"sie-server"}, pure...) {
						if _, err := os.Lstat(filepath.Join(programs, p)); err != nil {
							t.Error(err)
						}
					}
					if row != "r1:row" {
						t.Errorf("row %q", row)
					}
					return c.broken, c.err
				}}
			_, err := b.Run(t.Context(), []Fix{{
				Name: "fix", What: "x",
				Patches: []Patch{{"cmd/" + pure[0] + "/main.go", "main() {}", "main() { _ = 1 }"}},
				Row:     "r1:row", Sees: "lost",
			}})
			if c.err != nil {
				if !errors.Is(err, c.err) || len(told) != 0 {
					t.Errorf("%v and %+v", err, told)
				}
				return
			}
			if err != nil || len(told) != 1 || told[0].Red != c.red || !strings.Contains(told[0].Why, c.why) {
				t.Errorf("%v, %+v", err, told)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	all := []Fix{{Name: "drain-late"}, {Name: "drain-gives-back"}, {Name: "silence"}}
	for words, want := range map[string]int{
		"": 3, "drain": 2, "silence": 1, "drain-late silence": 2, "none": -1,
	} {
		got, err := Select(all, strings.Fields(words))
		if (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%q: %s, %v", words, fmt.Sprint(got), err)
		}
	}
}
