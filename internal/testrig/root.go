package testrig

import (
	"os"
	"path/filepath"
	"testing"
)

// started is the folder in which this process was started; a test may change folders later.
var started, startedErr = os.Getwd()

// Root returns the root of the source tree: the nearest folder above the tested package's own that
// has a go.mod. It does not depend on -trimpath, which takes the paths out of a test.
func Root(t testing.TB) string {
	t.Helper()
	if startedErr != nil {
		t.Fatal(startedErr)
	}
	for dir := started; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no folder above %s has a go.mod: run tests from the source tree", started)
		}
	}
}
