package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every variable that the operators' page of a cluster names is read by the code.
func TestDocumentedVariablesExist(t *testing.T) {
	const page = "docs/cluster.md"
	top := root(t)
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\bSIE_[A-Z0-9_]+\b`)
	missing := map[string]bool{}
	for _, v := range name.FindAllString(string(text), -1) {
		missing[v] = true
	}
	if len(missing) < 20 {
		t.Fatalf("%s names %d variables; is it still a table of them?", page, len(missing))
	}
	for _, part := range []string{"cmd", "internal/bus", "internal/cli", "configd", "gateway/pools"} {
		err := filepath.WalkDir(filepath.Join(top, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, v := range name.FindAllString(string(source), -1) {
				delete(missing, v)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for v := range missing {
		t.Errorf("%s: nothing reads %s", page, v)
	}
}
