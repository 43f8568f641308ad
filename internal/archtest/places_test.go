package archtest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// word is an identifier or a string of a Go file, with the tokens around it.
type word struct {
	file string // from the root, with slashes
	text string // of a string without its quotes
	kind token.Token
	of   string // the identifier before the dot before it, or ""
	next token.Token
}

// words lists those of all Go files that are no tests.
func words(t *testing.T) (all []word) {
	t.Helper()
	top := root(t)
	for _, folder := range []string{
		"bench", "catalog", "cmd", "configd", "gateway", "internal", "runtime", "sidecar", "tools", "weights",
	} {
		err := filepath.WalkDir(filepath.Join(top, folder),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
					strings.HasSuffix(path, "_test.go") {
					return err
				}
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				name, err := filepath.Rel(top, path)
				all = append(all, wordsOf(filepath.ToSlash(name), text)...)
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 50_000 {
		t.Fatalf("%d words were read; is this the whole tree?", len(all))
	}
	return all
}

func wordsOf(file string, text []byte) (all []word) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile(file, files.Base(), len(text)), text, nil, 0)
	last, before := word{}, word{} // of an identifier, and of the token between
	for {
		_, kind, text := s.Scan()
		if kind == token.EOF {
			return all
		}
		if n := len(all); n > 0 && all[n-1].next == token.ILLEGAL {
			all[n-1].next = kind
		}
		w := word{file: file, text: strings.Trim(text, "\"`"), kind: kind, next: token.ILLEGAL}
		if before.kind == token.PERIOD {
			w.of = last.text
			if w.of == "" {
				w.of = "?" // of no identifier
			}
		}
		if kind == token.IDENT || kind == token.STRING {
			all = append(all, w)
		}
		if kind == token.IDENT {
			last = w
		} else if kind != token.PERIOD {
			last = word{}
		}
		before = w
	}
}

// places lists the files that use a name of a package, each once.
func places(all []word, pkg, name string) (files []string) {
	short := pkg[strings.LastIndexByte(pkg, '/')+1:]
	for _, w := range all {
		inside := w.file[:strings.LastIndexByte(w.file, '/')] == pkg
		if w.kind == token.IDENT && w.text == name && (w.of == short ||
			inside && w.of == "" && w.next != token.COLON) && !slices.Contains(files, w.file) {
			files = append(files, w.file)
		}
	}
	return files
}

// declared lists the names that a file declares or uses and that belongs accepts, each once.
func declared(all []word, belongs func(w word) bool) (names []string) {
	for _, w := range all {
		if belongs(w) && !slices.Contains(names, w.text) {
			names = append(names, w.text)
		}
	}
	return names
}

// A family of models is named in the catalog's table, and if it is served in one file of
// runtime/task.
func TestPlacesOfAFamily(t *testing.T) {
	const table = "catalog/family.go"
	all, served := words(t), 0
	families := declared(all, func(w word) bool {
		return w.file == table && w.kind == token.IDENT && strings.HasPrefix(w.text, "Family") &&
			len(w.text) > len("Family")
	})
	families = slices.DeleteFunc(families, func(name string) bool { return name == "FamilyNone" })
	for _, name := range families {
		if name == "Families" {
			continue
		}
		files := places(all, "catalog", name)
		switch own := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return f == table }); {
		case len(own) == 0:
		case len(own) == 1 && strings.HasPrefix(own[0], "runtime/task/") &&
			own[0] != "runtime/task/families.go":
			served++
		default:
			t.Errorf("%s is named in %v: its row in %s and its own file in runtime/task are enough",
				name, files, table)
		}
	}
	if len(families) < 20 || served < 8 {
		t.Errorf("%d families, %d of them with a file: is the table where it was?", len(families), served)
	}
}

// A head is named in its own file, in the table of heads, and by the families that need it, in
// their own files.
func TestPlacesOfAHead(t *testing.T) {
	const table = "runtime/arch/head.go"
	all := words(t)
	var heads []string // of the declarations X = Task{…}
	for i, w := range all[1:] {
		if x := all[i]; w.text == "Task" && w.next == token.LBRACE && x.next == token.ASSIGN &&
			x.file == w.file && strings.HasPrefix(w.file, "runtime/arch/") && token.IsExported(x.text) {
			heads = append(heads, x.text)
		}
	}
	for _, name := range heads {
		files := places(all, "runtime/arch", name)
		here := slices.DeleteFunc(slices.Clone(files),
			func(f string) bool { return strings.HasPrefix(f, "runtime/task/") })
		if len(here) != 2 || !slices.Contains(here, table) {
			t.Errorf(
				"%s is named in %v: its own file, the table in %s and its families in runtime/task are enough",
				name, files, table)
		}
		for _, f := range files {
			if strings.HasPrefix(f, "runtime/task/") && !slices.ContainsFunc(all, func(w word) bool {
				return w.file == f && w.of == "catalog" && strings.HasPrefix(w.text, "Family") &&
					w.text != "Family"
			}) {
				t.Errorf("%s is named in %s, which is no family's file", name, f)
			}
		}
	}
	if len(heads) < 6 {
		t.Errorf("the heads are %v; is the table where it was?", heads)
	}
}

// An architecture is named once, in the table of architectures. The list of code in repositories
// may name it too, because code has its meaning beside a model_type.
func TestPlacesOfAnArchitecture(t *testing.T) {
	const table, code = "runtime/arch/model.go", "runtime/arch/knowncode.go"
	all := words(t)
	types := declared(all,
		func(w word) bool { return w.file == table && w.kind == token.STRING && w.next == token.COLON })
	for _, name := range types {
		n := 0
		for _, w := range all {
			// The option input_format has the value qwen3 for a prompt, whatever the architecture.
			if w.kind == token.STRING && w.text == name && w.file != code &&
				w.file != "catalog/judging.go" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the architecture %q is named %d times: the table in %s is enough", name, n, table)
		}
	}
	if len(types) < 7 || !slices.Contains(types, "albert") {
		t.Errorf("the architectures are %v; is the table where it was?", types)
	}
}
