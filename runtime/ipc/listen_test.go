package ipc

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The socket and its directory are ours alone; what is not is refused with what to do.
func TestListen(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "new", "ipc.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a live socket: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("it was stolen: %v", err)
	} else {
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}

	open := filepath.Join(root, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(path), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		filepath.Join(open, "ipc.sock"):              "run chmod 700",
		filepath.Join(link, "ipc.sock"):              "is not a directory",
		filepath.Join(root, "none", "x", "ipc.sock"): "no such file",
		file: "is not a socket",
		filepath.Join(root, strings.Repeat("x", 120)): "choose a shorter one",
	} {
		if l, err := Listen(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", path, l, err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("a file was removed: %v", err)
	}
}

// A socket that a dead process left is replaced; one of a process without our lock is not.
func TestStaleSockets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ipc.sock")
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a live socket without a lock: %v", err)
	}
	other.SetUnlinkOnClose(false)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("no stale socket to replace")
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A server that begins at the same time has the lock before it has the socket.
func TestTheLockDecides(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ipc.sock")
	other, err := os.Create(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("%v", err)
	}
}

func TestPeers(t *testing.T) {
	for _, c := range []struct {
		uid, self int
		ok        bool
	}{{1000, 1000, true}, {0, 1000, true}, {1001, 1000, false}, {1000, 0, false}} {
		if err := allowed(c.uid, c.self); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	mine, theirs := pair(t)
	defer mine.Close()
	defer theirs.Close()
	if err := checkPeer(theirs); err != nil {
		t.Errorf("ourselves: %v", err)
	}
}
