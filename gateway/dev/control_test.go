package dev

import (
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// short is a listener that once has no file for a connection.
type short struct {
	net.Listener
	failed atomic.Bool
}

func (l *short) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		err := os.NewSyscallError("accept4", syscall.EMFILE)
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: err}
	}
	return l.Listener.Accept()
}

// A cluster that has no file for a command carries it out, and those after it, as soon as there is
// one.
func TestCommandsThroughAShortage(t *testing.T) {
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	c := &Cluster{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	k := c.accept(t.Context(), &short{Listener: l})
	ended := make(chan struct{})
	go func() { k.running.Wait(); close(ended) }()
	replied := make(chan Reply, 1)
	conn, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		var r Reply
		_ = json.NewEncoder(conn).Encode(Command{Do: "nothing"})
		_ = json.NewDecoder(conn).Decode(&r)
		replied <- r
	}()
	select {
	case r := <-replied:
		if !strings.Contains(r.Error, "unknown command") {
			t.Errorf("%+v", r)
		}
	case <-ended:
		t.Error("no command is accepted any more")
	}
	k.close()
	if strings.Count(log.String(), "too many open files") != 1 {
		t.Error(log.String())
	}
}
