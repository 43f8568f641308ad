package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// put writes two rows of two bytes to path as encode does. in is the file that encode reads.
func put(t *testing.T, path, in string) error {
	t.Helper()
	var st os.FileInfo
	if in != "" {
		var err error
		if st, err = os.Stat(in); err != nil {
			t.Fatal(err)
		}
	}
	n, err := createNPY(t.Context(), path, "int8", st)
	if err != nil {
		return err
	}
	for _, row := range []string{"ab", "cd"} {
		if err := n.write([]byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	return n.close(true)
}

func isNPY(b []byte) bool {
	return len(b) == npyHeader+4 && strings.HasPrefix(string(b),
		"\x93NUMPY\x01\x00\x76\x00{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2), }") &&
		b[npyHeader-1] == '\n' && string(b[npyHeader:]) == "abcd"
}

// only fails the test unless a directory holds exactly these files.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the directory has %q, want %q; %v", got, want, err)
	}
}

func TestOutNewOldAndLinked(t *testing.T) {
	dir := t.TempDir()
	old, link := dir+"/old", dir+"/link"
	if err := errors.Join(os.WriteFile(old, []byte("something longer than an array of four bytes"+
		strings.Repeat(".", 200)), 0o600), os.Symlink("old", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/new", old, link} {
		if err := put(t, path, ""); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !isNPY(b) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if st, err := os.Stat(old); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("a file that is replaced changes its mode: %v, %v", st.Mode(), err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode().Type() != fs.ModeSymlink {
		t.Errorf("a link is replaced: %v, %v", st.Mode(), err)
	}
	only(t, dir, "link", "new", "old")
}

// Anything but a regular file is written to and stays what it is. The tests reach devices through
// links, so that a bug would replace the links and not the machine's devices.
func TestOutToDevices(t *testing.T) {
	dir := t.TempDir()
	null, full := dir+"/null", dir+"/full"
	if err := errors.Join(os.Symlink("/dev/null", null), os.Symlink("/dev/full", full)); err != nil {
		t.Fatal(err)
	}
	if err := put(t, null, null); err != nil { // a terminal may also be both read and written
		t.Error(err)
	}
	if err := put(t, full, ""); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full device: %v", err)
	}
	for _, path := range []string{null, full} {
		if st, err := os.Lstat(path); err != nil || st.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s is %v, %v", path, st.Mode(), err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode()&fs.ModeCharDevice == 0 {
			t.Errorf("behind %s is %v, %v", path, st.Mode(), err)
		}
	}
	only(t, dir, "full", "null")
}

func TestOutToAPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := dir + "/pipe"
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- put(t, pipe, "") }()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || !isNPY(b) {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	f.Close()
	if st, err := os.Lstat(pipe); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("the pipe is %v, %v", st.Mode(), err)
	}
	// Nobody reads the pipe: opening it ends with ctx.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := createOut(ctx, pipe, nil); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "nobody reads this pipe") {
		t.Error(err)
	}
	only(t, dir, "pipe")
}

func TestOutIsRefused(t *testing.T) {
	dir := t.TempDir()
	in := dir + "/in"
	err := errors.Join(os.WriteFile(in, []byte("text\n"), 0o644), os.Link(in, dir+"/hard"),
		os.Symlink("in", dir+"/soft"), os.Symlink("gone", dir+"/dead"), os.Mkdir(dir+"/folder", 0o755),
		unix.Mkfifo(dir+"/pipe", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		in: "is the file that is read", dir + "/./in": "is the file that is read",
		dir + "/hard": "is the file that is read", dir + "/soft": "is the file that is read",
		dir + "/dead": "is a link that leads nowhere", dir + "/folder": "is a directory",
		dir + "/none/x": "no such file",
	} {
		if err := put(t, path, in); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--out") {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := put(t, dir+"/pipe", dir+"/pipe"); err == nil ||
		!strings.Contains(err.Error(), "is the file that is read") {
		t.Error(err)
	}
	if b, err := os.ReadFile(in); err != nil || string(b) != "text\n" {
		t.Errorf("the input is %q, %v", b, err)
	}
	only(t, dir, "dead", "folder", "hard", "in", "pipe", "soft")
}

// An incomplete result leaves nothing behind. A path that became a pipe meanwhile stays a pipe.
func TestOutIsNotFinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.npy")
	for _, begin := range []func(){func() {}, func() { _ = os.WriteFile(path, []byte("old"), 0o644) }} {
		begin()
		n, err := createNPY(t.Context(), path, "int8", nil)
		if err == nil {
			err = n.close(false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	n, err := createNPY(t.Context(), path, "int8", nil)
	if err == nil {
		err = errors.Join(n.write([]byte("ab")), os.Remove(path), unix.Mkfifo(path, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.close(true); err == nil || !strings.Contains(err.Error(), "not replaced") {
		t.Error(err)
	}
	if err := n.write([]byte("abc")); err == nil {
		t.Error("a row of another width is taken")
	}
	only(t, dir, "x.npy")
	// A part file that somebody else made is not touched.
	if err := os.WriteFile(dir+"/y.npy.part", []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := put(t, dir+"/y.npy", ""); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/y.npy.part"); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}
