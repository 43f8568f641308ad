package archtest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// codeColumns is the greatest width of a line of code, where a tab counts as four columns.
	codeColumns = 110
	// literalColumns is the width of a string literal from which on its line may be wider.
	literalColumns = 60
)

// scriptLiteral matches a piece of a string of literalColumns in a script.
var scriptLiteral = regexp.MustCompile(`"(\\.|[^"\\]){58,}|'(\\.|[^'\\]){58,}|[^"']{58,}"""$`)

// TestCodeIsNarrow holds lines of Go, Python and shell within codeColumns. A line with a literal of
// literalColumns or more may be wider, because such a literal is not divided.
func TestCodeIsNarrow(t *testing.T) {
	top := root(t)
	files := map[string]int{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			rel, _ := filepath.Rel(top, path)
			hidden := strings.HasPrefix(d.Name(), ".") && path != top
			if hidden || strings.HasPrefix(rel, "build") || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		kind := filepath.Ext(path)
		code := kind == ".go" || kind == ".py" || kind == ".sh"
		if !code || strings.HasSuffix(path, "_gen.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[kind]++
		for _, n := range wideLines(kind, text) {
			rel, _ := filepath.Rel(top, path)
			t.Errorf("%s:%d: more than %d columns", rel, n, codeColumns)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files[".go"] < 300 || files[".py"] < 80 || files[".sh"] < 20 {
		t.Errorf("%v files were read; is this the whole tree?", files)
	}
}

// wideLines returns the numbers of the lines that are too wide and have no long literal.
func wideLines(kind string, text []byte) (wide []int) {
	long := map[int]bool{}
	if kind == ".go" {
		long = longLiterals(text)
	}
	quoted := false // within a Python string of three quotes
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.ReplaceAll(line, "\t", "    ")
		inside := quoted
		if kind == ".py" && strings.Count(line, `"""`)%2 == 1 {
			quoted = !quoted
		}
		if utf8.RuneCountInString(line) <= codeColumns || long[n+1] {
			continue
		}
		words := strings.TrimSpace(line)
		switch {
		case kind == ".go" && strings.HasPrefix(words, "//"): // TestCommentsAreNarrow
		case kind != ".go" && strings.HasPrefix(words, "#"): // tables of what a script takes and writes
		case kind != ".go" && (inside || quoted || scriptLiteral.MatchString(line)):
		default:
			wide = append(wide, n+1)
		}
	}
	return wide
}

// longLiterals returns the lines of a Go file that hold a piece of a literal of literalColumns.
func longLiterals(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	long := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return long
		}
		if tok != token.STRING {
			continue
		}
		for k, piece := range strings.Split(literal, "\n") {
			if utf8.RuneCountInString(strings.ReplaceAll(piece, "\t", "    ")) >= literalColumns {
				long[fset.Position(pos).Line+k] = true
			}
		}
	}
}

// A line is too wide by one column, and not with a literal of literalColumns.
func TestWideLinesAreFound(t *testing.T) {
	code := "x := f(" + strings.Repeat("a, ", 34) + "b)"
	literal := "x := `" + strings.Repeat("a", literalColumns-2) + "`" + strings.Repeat(" + y", 12)
	short := "x := `" + strings.Repeat("a", literalColumns-3) + "`" + strings.Repeat(" + y", 12)
	for _, c := range []struct {
		kind, line string
		wide       bool
	}{
		{".go", code[:codeColumns], false}, {".go", code + "b", true}, {".go", literal, false},
		{".go", short, true}, {".go", "\t\t" + code[:codeColumns-8], false},
		{".go", "\t\t" + code[:codeColumns-7], true}, {".py", code + "b", true},
		{".py", `x = "` + strings.Repeat("a", 58) + `"` + strings.Repeat(" + y", 12), false},
		{".py", `"""` + strings.Repeat("a ", 60), false}, {".sh", code + "b", true},
		{".sh", "# " + strings.Repeat("a ", 60), false},
	} {
		if got := wideLines(c.kind, []byte(c.line)); (len(got) == 1) != c.wide {
			t.Errorf("%s: %q: lines %v", c.kind, c.line, got)
		}
	}
}
