package httpd

import (
	"net"
	"os"
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
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// A server that has no file for a connection serves it, and those after it, as soon as there is
// one.
func TestTooManyFilesEndNoServer(t *testing.T) {
	r := start(t, Options{})
	r.addr = r.listen(func(l net.Listener) net.Listener { return &short{Listener: l} })
	answered := make(chan answer, 1)
	go func() { answered <- r.do("GET", "/open", "") }()
	select {
	case a := <-answered:
		if a.status != 200 {
			t.Errorf("%+v", a)
		}
	case err := <-r.done:
		r.done <- err // the end of the test reads it, too
		t.Fatalf("the server ended: %v", err)
	}
	if text := r.log.String(); strings.Count(text, "too many open files") != 1 {
		t.Error(text)
	}
}
