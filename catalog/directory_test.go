package catalog

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const dirModel = "sie_id: x/%\nhf_id: x/y\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n" +
	"  default: {adapter_path: \"sie_server.adapters.bert_flash:BertFlashAdapter\", max_batch_tokens: 1024}\n"

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
		os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func writeModel(t *testing.T, name, id string) {
	t.Helper()
	writeFile(t, name, strings.ReplaceAll(dirModel, "%", id))
}

// waits fails the test when a call waits for a pipe's writer. It then opens the pipe for writing,
// so that the call ends.
func waits(t *testing.T, pipe string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Error("the pipe is waited for")
		for range 100 {
			if fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_ = unix.Close(fd)
			}
			time.Sleep(10 * time.Millisecond)
		}
		<-done
	}
}

// Files that are not regular are named and not read. A reload keeps the other files.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir, file string) error
		want string
	}{
		"pipe": {func(_ *testing.T, _, file string) error { return unix.Mkfifo(file, 0o644) },
			"it is a named pipe, not a regular file"},
		"link to a pipe": {func(_ *testing.T, dir, file string) error {
			return errors.Join(unix.Mkfifo(dir+"/pipe", 0o644), os.Symlink("pipe", file))
		}, "it is a named pipe, not a regular file"},
		"link to a folder": {func(_ *testing.T, dir, file string) error {
			return errors.Join(os.Mkdir(dir+"/sub", 0o755), os.Symlink("sub", file))
		}, "it is a directory, not a regular file"},
		"socket": {listen, "it is a socket, not a regular file"},
		"link to a device": {func(_ *testing.T, _, file string) error {
			return os.Symlink("/dev/zero", file)
		}, "a link that leads out of the directory"},
		"absolute link": {func(_ *testing.T, _, file string) error { return os.Symlink("/etc/passwd", file) },
			"a link that leads out of the directory"},
		"link to the parent": {func(_ *testing.T, dir, file string) error {
			writeModel(t, dir+"/../other.yaml", "other")
			return os.Symlink("../other.yaml", file)
		}, "a link that leads out of the directory"},
		"link to nowhere": {func(_ *testing.T, _, file string) error { return os.Symlink("gone.yaml", file) },
			"a link that leads nowhere"},
		"links in a circle": {func(_ *testing.T, _, file string) error { return os.Symlink("b.yaml", file) },
			"link"},
		"more than a file may be": {func(t *testing.T, _, file string) error {
			writeFile(t, file, strings.Repeat("#\n", maxFileBytes))
			return nil
		}, "the limit is 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "models")
			writeModel(t, dir+"/a.yaml", "a")
			file := dir + "/b.yaml"
			if err := c.make(t, dir, file); err != nil {
				t.Fatal(err)
			}
			waits(t, file, func() {
				_, err := LoadDir(dir)
				if err == nil || !strings.Contains(err.Error(), "models/b.yaml:1: ") ||
					!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "root:") {
					t.Errorf("at start: %v", err)
				}
			})
			old, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			waits(t, file, func() {
				got, broken, err := ReloadDir(dir, old)
				if err != nil || got.Len() != 1 || broken == nil ||
					!strings.Contains(broken.Error(), c.want) {
					t.Errorf("on a reload: %v, %v", broken, err)
				}
			})
		})
	}
}

func listen(t *testing.T, _, file string) error {
	t.Chdir(filepath.Dir(file)) // a socket's address is short
	l, err := net.Listen("unix", filepath.Base(file))
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}

// A file may become a pipe after the check.
func TestFileBecomesAPipe(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/a.yaml"
	writeModel(t, file, "a")
	d, err := openDirectory(dir, "models")
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	d.looked = func() {
		if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o644)); err != nil {
			t.Error(err)
		}
	}
	waits(t, file, func() {
		if f, err := d.Open("a.yaml"); err == nil || !strings.Contains(err.Error(), "a named pipe") {
			t.Errorf("opened %v, %v", f, err)
		}
	})
	if t.Failed() {
		return
	}
	before := descriptors(t)
	for range 20 {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		writeModel(t, file, "a")
		_, _ = d.Open("a.yaml")
	}
	if after := descriptors(t); after > before+10 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// descriptors returns the number of open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// The layout of a mounted Kubernetes ConfigMap: links through a link to a dated folder, which is
// replaced in one step.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	writeModel(t, dir+"/..day1/a.yaml", "a")
	writeModel(t, dir+"/..day2/a.yaml", "b")
	for link, to := range map[string]string{"..data": "..day1", "a.yaml": "..data/a.yaml"} {
		if err := os.Symlink(to, dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	c, err := LoadDir(dir)
	if err != nil || c.Len() != 1 || c.Models()[0].ID != "x/a" {
		t.Fatalf("%v, %v", c, err)
	}
	if err := errors.Join(os.Symlink("..day2", dir+"/..tmp"),
		os.Rename(dir+"/..tmp", dir+"/..data")); err != nil {
		t.Fatal(err)
	}
	c, broken, err := ReloadDir(dir, c)
	if err != nil || broken != nil || c.Len() != 1 || c.Models()[0].ID != "x/b" {
		t.Errorf("%v, %v, %v", c, broken, err)
	}
}

// All problems are reported at once, of any kind. The content of a file that is not a model file is
// not printed.
func TestProblemsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/list.yaml", "- secret: s3cret\n")
	writeFile(t, dir+"/passwd.yaml", "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1\n")
	writeFile(t, dir+"/model.yaml", "sie_id: x/a\nnonsense: s3cret\n")
	if err := unix.Mkfifo(dir+"/p.yaml", 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := LoadDir(dir)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"/list.yaml:1: expected a map, got a list", "/passwd.yaml:1: expected a map, got a single value",
		"/model.yaml:2: nonsense: unknown key", "/p.yaml:1: the file cannot be read",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "root") {
		t.Errorf("it tells what is in the files: %v", err)
	}
}

func TestDirectoryIsBounded(t *testing.T) {
	for _, what := range []string{"models", "bundles"} {
		if _, err := openDirectory(t.TempDir()+"/none", what); !errors.Is(err, fs.ErrNotExist) ||
			!strings.HasPrefix(err.Error(), what+" directory") {
			t.Error(err)
		}
	}
	file := t.TempDir() + "/file"
	writeFile(t, file, "")
	if _, err := LoadBundlesDir(file); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Error(err)
	}
	// A directory's descriptors are closed again.
	dir := t.TempDir()
	writeModel(t, dir+"/a.yaml", "a")
	writeModel(t, dir+"/b.yaml", "b")
	d, err := openDirectory(dir, "models")
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	if list, err := d.entries(2); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := d.entries(1); err == nil || err.Error() != "it has more than 1 entries" {
		t.Error(err)
	}
	if err := unix.Mkfifo(dir+"/p.yaml", 0o644); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for range 50 {
		_, _ = LoadDir(dir)
		_, _, _ = ReloadDir(dir, &Catalog{})
	}
	if after := descriptors(t); after > before+20 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
