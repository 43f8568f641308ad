package dev

import (
	"bytes"
	"encoding/json"
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
