package task_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/task"
)

// Exactly the families that the catalog says are served are served here.
func TestFamiliesOfTheCatalogAreServed(t *testing.T) {
	tasks := task.Tasks()
	for _, f := range catalog.Families() {
		served, _ := f.Served()
		if what, here := tasks[f]; served != here || here && what == 0 {
			t.Errorf("the catalog says that %q is served: %v; its task here is %v", f, served, what)
		}
	}
}

// A family is named only in the catalog and in this package's table. Adding a family needs no
// search for other places.
func TestFamiliesAreNamedInOnePlace(t *testing.T) {
	root := filepath.Join("..", "..")
	named := make(map[string]int)
	for _, part := range []string{"runtime", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "catalog" && strings.HasPrefix(s.Sel.Name, "Family") && s.Sel.Name != "Family" && s.Sel.Name != "FamilyNone" {
						named[filepath.ToSlash(path)+" "+s.Sel.Name]++
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for place, n := range named {
		if !strings.Contains(place, "runtime/task/families.go") || n != 1 {
			t.Errorf("%s is named %d times: only the table names families, once", place, n)
		}
	}
	if len(named) != len(task.Tasks()) {
		t.Errorf("%d names in the table, %d families", len(named), len(task.Tasks()))
	}
}
