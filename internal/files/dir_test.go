package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// A tree of regular files reads as with os.DirFS. Opening a pipe, a socket or a device in it fails
// at once.
func TestDir(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("sub"), 0o755), os.WriteFile(at("a.json"), []byte("{}"), 0o600),
		os.WriteFile(at("sub/b"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(Dir(dir), "a.json", "sub/b"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Mkfifo(at("sub/pipe"), 0o600), os.Symlink("sub/pipe", at("link")),
		os.Symlink("/dev/null", at("null")), os.Symlink("sub", at("folder"))); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]string{
		"sub/pipe": "a named pipe", "link": "a named pipe", "null": "a device",
	} {
		f, err := Dir(dir).Open(name)
		if want := name + " is " + kind + ", not a regular file"; f != nil ||
			!errors.Is(err, ErrNotRegular) || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		if info, err := fs.Stat(Dir(dir), name); err != nil || info.Mode().IsRegular() {
			t.Errorf("%s: %v", name, err)
		}
	}
	entries, err := fs.ReadDir(Dir(dir), "folder")
	if err != nil || !slices.EqualFunc(entries, []string{"b", "pipe"},
		func(e fs.DirEntry, n string) bool { return e.Name() == n }) {
		t.Errorf("a link to a directory: %v, %v", entries, err)
	}
	for _, name := range []string{"none", "sub/none", "a.json/x"} {
		_, err := Dir(dir).Open(name)
		var of *fs.PathError
		if !errors.As(err, &of) || of.Path != name || name != "a.json/x" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := fs.Stat(Dir(dir), name); !errors.As(err, &of) || of.Path != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"../x", "/etc/passwd", "", "a//b", "sub/../a.json"} {
		if _, err := Dir(dir).Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
