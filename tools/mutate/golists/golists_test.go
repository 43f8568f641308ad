package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const listed = `# a comment
tests: TestA/.*/fp32

a.go T.m: one is two
- 1 +
-   x
+ 2 + x

a.go f: nothing is called
- g(a)
tests: TestB
a.go v: another value
- "old"
+ "new"
`

const code = `package p

type T struct{ n int }

var v = []string{"old"}

func (*T) m(x int, _ string, rest ...int) int {
	return 1 +
		x
}

func f(a int) { g(a) }

func g(int) {}
`

func TestLists(t *testing.T) {
	all, err := parseList("list.txt", listed)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if m := all[0]; m.id() != "a.go T.m: one is two" || m.old != "1 +\n  x" || m.new != "2 + x" ||
		m.tests != "TestA/.*/fp32" {
		t.Errorf("%+v", m)
	}
	if m := all[1]; m.new != "" || m.tests != "TestA/.*/fp32" || all[2].tests != "TestB" {
		t.Errorf("%+v %+v", m, all[2])
	}
	for bad, says := range map[string]string{
		"a.go f: x\n- y\n":               "no tests",
		"tests: T\na.go: x\n- y\n":       "a heading is",
		"tests: T\n- y\n":                "no heading",
		"tests: T\na.go f: x\n+ y\n":     "nothing is replaced",
		"tests: T\na.go f: x\n+ y\n- z":  "no heading stands",
		"tests: T\na.go f: x\na.go g: y": "nothing is replaced",
	} {
		if _, err := parseList("list.txt", bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; %q was expected", bad, err, says)
		}
	}
	folder := t.TempDir()
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(listed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readLists(folder); err == nil || !strings.Contains(err.Error(), "listed twice") {
		t.Error(err)
	}
}

// Every mutant is behind its number, and parameters without a name have got one.
func TestInstrument(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.go"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := readSource(folder, "a.go")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseList("list.txt", listed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.instrument(map[int]*mutant{1: all[0], 2: all[1], 3: all[2]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "a.go", text, 0); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, part := range []string{
		`siePick(3, []string{"new"}, []string{"old"})`,
		"case 1: return sieUnused66.mMutant1(x, sieUnused79, rest...);",
		"case 2: fMutant2(a); return;", "return 2 + x", "func f(a int) { switch",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
	all[1].old = "h(a)"
	if _, err := s.instrument(map[int]*mutant{2: all[1]}); err == nil ||
		!strings.Contains(err.Error(), "occurs 0 times") {
		t.Error(err)
	}
	all[1].decl = "h"
	if _, err := s.instrument(map[int]*mutant{2: all[1]}); err == nil ||
		!strings.Contains(err.Error(), "has no function or variable h") {
		t.Error(err)
	}
}

// The lists fit the sources, and every file of an architecture has one.
func TestListsFitTheSources(t *testing.T) {
	t.Chdir("../../..")
	all, err := lists()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := instrumentAll(".", t.TempDir(), all); err != nil {
		t.Error(err)
	}
}

// A pattern whose subtests are not there runs nothing, although the test around them passes.
func TestRan(t *testing.T) {
	for _, c := range []struct {
		tests, said string
		want        bool
	}{
		{"TestA/x", "--- PASS: TestA (0.00s)\n", false},
		{"TestA/x", "--- PASS: TestA (0.00s)\n    --- PASS: TestA/x=1 (0.00s)\n", true},
		{"TestA|TestB/.*/y", "--- PASS: TestA (0.00s)\n    --- PASS: TestB/x (0.00s)\n", false},
		{"TestA", "--- PASS: TestA (0.00s)\n", true},
		{"TestA", "testing: warning: no tests to run\nPASS\n", false},
	} {
		if got := ran(c.tests, c.said); got != c.want {
			t.Errorf("%s, %q: %v, want %v", c.tests, c.said, got, c.want)
		}
	}
}
