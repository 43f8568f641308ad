package httpd

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A request that has arrived but is unread when its connection is ended is still answered; bytes
// that come later are not read.
func TestEndLetsWhatHasArrivedBeRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, there := ends(t, l)
	c := newConn(here).(*conn)
	if _, err := there.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := c.Read(one); err != nil { // the rest has arrived too
		t.Fatal(err)
	}
	c.end()
	rest := make([]byte, 10)
	if n, err := c.Read(rest); err != nil || string(rest[:n]) != "bc" {
		t.Errorf("what had arrived reads %q, %v", rest[:n], err)
	}
	if n, err := c.Read(rest); n != 0 || !isTimeout(err) {
		t.Errorf("then %d bytes, %v", n, err)
	}
	if _, err := c.Write([]byte("answer")); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(there); err != nil || string(b) != "answer" {
		t.Errorf("the peer reads %q, %v", b, err)
	}
}

// An answer reaches a client that is still sending.
func TestCloseDoesNotResetUnderAnAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, there := ends(t, l)
	c := newConn(here)
	if _, err := there.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { c.Close(); close(done) }()
	buf := make([]byte, 6)
	if _, err := io.ReadFull(there, buf); err != nil || string(buf) != "answer" {
		t.Fatalf("%q, %v", buf, err)
	}
	if n, err := there.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the answer %d bytes, %v", n, err)
	}
	if _, err := there.Write(make([]byte, 100_000)); err != nil { // a reset would come back
		t.Error(err)
	}
	there.Close()
	<-done
}

// A server that is shut down before, or while, it begins to serve does not serve for ever.
func TestServeAfterShutdownEnds(t *testing.T) {
	for range 50 {
		s, err := New(Options{IdleGrace: time.Nanosecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}
