package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// commentColumns is the greatest width of a comment, where a tab counts as four columns.
const commentColumns = 100

// Comments of Go files are at most commentColumns wide, except an example's output, which is one
// line.
func TestCommentsAreNarrow(t *testing.T) {
	top := root(t)
	files := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != top || d.Name() == "build" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			line = strings.ReplaceAll(line, "\t", "    ")
			words := strings.TrimSpace(line)
			if strings.HasPrefix(words, "//") && !oneLine(words) && len([]rune(line)) > commentColumns {
				t.Errorf("%s:%d: a comment of %d columns, more than %d: %s",
					path, n+1, len([]rune(line)), commentColumns, words)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("%d Go files were read; is this the whole tree?", files)
	}
}

// oneLine reports whether a comment may not be wrapped: an example's output or a cgo directive.
func oneLine(comment string) bool {
	return strings.HasPrefix(comment, "// Output:") || strings.HasPrefix(comment, "// #cgo ")
}
