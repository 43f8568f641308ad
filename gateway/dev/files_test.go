package dev

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Whoever reads cluster.json while it changes sees a whole state, and after a flush the last one.
func TestTheStateFileIsAlwaysWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), stateFile)
	var n atomic.Int64
	k := newKeeper(path, func() State {
		s := State{NATS: NATSState{Pid: int(n.Load())}}
		for range n.Load() % 50 { // long and short in turn
			s.Workers = append(s.Workers, WorkerState{ID: strings.Repeat("w", 100)})
		}
		return s
	}, slog.New(slog.DiscardHandler))
	go k.run()
	k.flush()
	quit, read := make(chan struct{}), make(chan int)
	go func() {
		whole := 0
		defer func() { read <- whole }()
		for {
			select {
			case <-quit:
				return
			default:
			}
			text, err := os.ReadFile(path)
			var s State
			if err == nil {
				err = json.Unmarshal(text, &s)
			}
			if err != nil || len(s.Workers) != s.NATS.Pid%50 {
				t.Errorf("a part was read: %v", err)
				return
			}
			whole++
		}
	}()
	for range 300 {
		n.Add(1)
		k.changed()
		if n.Load()%3 == 0 {
			k.flush()
		}
	}
	k.flush()
	close(quit)
	if <-read == 0 {
		t.Error("nothing was read")
	}
	k.close()
	k.flush() // returns after the end, too
	var s State
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &s) != nil || s.NATS.Pid != 300 {
		t.Errorf("the last state is %d (%v)", s.NATS.Pid, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 1 || err != nil {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// A log keeps to its bound, in its file and the one before, loses no line in between, and goes on
// where an earlier process stopped.
func TestLogsAreBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	line := []byte(strings.Repeat("x", 99) + "\n")
	l, err := openLog(path, 1000)
	if err != nil {
		t.Fatal(err)
	}
	size := func(name string) int64 {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	for i := range 25 {
		if i == 5 { // another process takes over
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l, err = openLog(path, 1000); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
		if size("log") > 1000 || size("log.1") > 1000 {
			t.Fatalf("%d and %d bytes", size("log"), size("log.1"))
		}
	}
	if size("log") != 500 || size("log.1") != 1000 {
		t.Errorf("%d and %d bytes, want 500 and 1000", size("log"), size("log.1"))
	}
	if _, err := l.Write(bytes.Repeat([]byte("y"), 5000)); err != nil || len(l.Tail()) != maxTail {
		t.Errorf("%v, a tail of %d bytes", err, len(l.Tail()))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A disk that takes nothing does not end the process's output.
	if l, err = openLog("/dev/full", 1000); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := l.Write(line); n != len(line) || err != nil || l.dropped != int64(len(line)) {
		t.Errorf("%d %v, %d dropped", n, err, l.dropped)
	}
}

// A directory that holds somebody else's work is refused as a state directory, and stays as it was.
// One that is empty, that is this user's alone or that is of a cluster is taken.
func TestAStateDirectoryIsNobodyElses(t *testing.T) {
	for name, c := range map[string]struct {
		mode  os.FileMode
		files []string
		want  string // in the error; "": it is taken
	}{
		"empty": {0o755, nil, ""},
		"what a cluster removes": {
			0o700, []string{"config/models.yaml"}, "has config, which is of no cluster",
		},
		"the same, a file":      {0o700, []string{"run"}, "has run, which is of no cluster"},
		"the name of the state": {0o700, []string{stateFile}, "has " + stateFile},
		"files that others see": {
			0o755, []string{"notes.txt"}, "other users may use it (mode -rwxr-xr-x)",
		},
		"this user's alone":            {0o700, []string{"notes.txt"}, ""},
		"of a cluster":                 {0o700, []string{markFile, "run/w0/ipc.sock", stateFile}, ""},
		"of one of an earlier version": {0o700, []string{"log/config-0.log", "config/epoch"}, ""},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range c.files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		o := options(bin(t), dir, ports(t))
		cluster, err := New(o)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			info, err := os.Stat(dir)
			if err := errors.Join(err, cluster.Close()); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
			// With files in it of a cluster that ended, it is taken again.
			o.Storage = "file"
			if err := os.MkdirAll(filepath.Join(dir, "config"), 0o700); err != nil {
				t.Fatal(err)
			}
			if cluster, err = New(o); err != nil {
				t.Errorf("%s, again: %v", name, err)
			} else if err := cluster.Close(); err != nil {
				t.Errorf("%s, again: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "choose an empty") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != c.mode {
			t.Errorf("%s: the mode is %v, %v", name, info.Mode(), err)
		}
		held, err := os.ReadDir(dir)
		if err != nil || len(held) != len(c.files) {
			t.Errorf("%s: it holds %v, %v", name, held, err)
		}
		for _, file := range c.files {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != "mine" {
				t.Errorf("%s: %s is gone: %q, %v", name, file, text, err)
			}
		}
	}
}
