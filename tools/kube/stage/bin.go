package stage

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the root of the source tree: the folder above tools/kube.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", Gateway)); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("run tests from the source tree")
		}
	}
}

// Full skips a test that `make kube-check` runs and `make test` does not: it needs the programs, an
// API server or minutes.
func Full(t testing.TB) {
	t.Helper()
	if os.Getenv("SIE_KUBE_CHECK") == "" {
		t.Skip("make kube-check runs this")
	}
}

// Programs returns the directory of the four programs, build/kube/bin or that of SIE_BIN. A test
// that needs them fails without them, and never skips.
func Programs(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("SIE_BIN")
	if bin == "" {
		bin = filepath.Join(Root(t), "build", "kube", "bin")
	}
	for _, p := range []string{Gateway, Server, Sidecar, Config} {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			t.Fatalf("%v: run make kube-programs first, or name their directory in SIE_BIN", err)
		}
	}
	return bin
}

// Dir returns an empty folder whose path is short enough for sockets, removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sie")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
