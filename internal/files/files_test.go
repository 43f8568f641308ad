package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for size := range int64(5) {
		want := bytes.Repeat([]byte("x"), int(size))
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		for limit := range int64(5) {
			got, err := Read(path, limit)
			if size > limit {
				if !errors.Is(err, ErrTooLarge) || err.Error() != fmt.Sprintf(
					"%s has %d bytes, more than the limit of %d", path, size, limit) || got != nil {
					t.Errorf("%d bytes, limit %d: %q, %v", size, limit, got, err)
				}
			} else if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, limit %d: %q, %v", size, limit, got, err)
			}
		}
	}
}

// Files in /proc report a size of 0, whatever their content: the bound applies to the bytes read.
func TestReadBoundsAFileThatHidesItsSize(t *testing.T) {
	const path = "/proc/self/status"
	if whole, err := Read(path, 1<<20); err != nil || len(whole) == 0 {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	if _, err := Read(path, 10); !errors.Is(err, ErrTooLarge) ||
		err.Error() != path+" is larger than 10 bytes" {
		t.Errorf("error is %v", err)
	}
}

func TestReadAllKeepsTheReadersError(t *testing.T) {
	if got, err := ReadAll(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("abc"))),
		8); !errors.Is(err, iotest.ErrTimeout) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
	endless := struct{ io.Reader }{iotest.OneByteReader(zeros{})}
	if _, err := ReadAll(endless, 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an endless reader: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A pipe without a writer would block an ordinary open.
func TestOpenRegularRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := errors.Join(unix.Mkfifo(at("pipe"), 0o600), os.Symlink("pipe", at("link")),
		os.WriteFile(at("file"), nil, 0o600), os.Symlink("file", at("good"))); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{
		at("pipe"):   "a named pipe",
		at("link"):   "a named pipe",
		at("socket"): "a socket",
		dir:          "a directory",
		"/dev/null":  "a device",
	} {
		f, _, err := OpenRegular(path)
		if want := path + " is " + kind + ", not a regular file"; f != nil ||
			!errors.Is(err, ErrNotRegular) || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	if f, _, err := OpenRegular(at("none")); f != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	f, info, err := OpenRegular(at("good"))
	if err != nil || !info.Mode().IsRegular() {
		t.Fatalf("a link to a file: %v", err)
	}
	f.Close()
}

// If a path becomes a pipe between the check and the opening, the opening neither waits nor
// succeeds.
func TestOpenRegularOfWhatBecomesAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, _, err := openRegular(path, func() {
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	})
	if want := path + " is a named pipe, not a regular file"; f != nil || !errors.Is(err, ErrNotRegular) ||
		err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""}, {"a", 0, "…"}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"},
		{"aéb", 3, "aé…"}, {"a😀b", 4, "a…"},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80\x80…"}, {"😀", 1, "…"},
	} {
		if got := Clip(c.in, c.most); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
	const long = "日本語のテキストé😀 mixed"
	for limit := range len(long) + 2 {
		if got := Clip(long, limit); !utf8.ValidString(got) || len(got) > limit+len("…") {
			t.Errorf("Clip(…, %d) = %q", limit, got)
		}
	}
}
