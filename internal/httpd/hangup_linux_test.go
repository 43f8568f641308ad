package httpd

import (
	"net"
	"testing"
)

// ends returns the two ends of a TCP connection, closed with the test.
func ends(t *testing.T, l net.Listener) (here, there net.Conn) {
	t.Helper()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if here, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

func descriptor(t *testing.T, c net.Conn) (fd int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(d uintptr) { fd = int(d) }); err != nil {
		t.Fatal(err)
	}
	return fd
}

// An event that was taken from the kernel before its connection was closed does not affect the next
// connection that gets the descriptor.
func TestHangUpIsItsOwnConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, seen := make(chan struct{}), make(chan struct{})
	h, err := newHangups(func() { taken <- struct{}{}; <-seen })
	if err != nil {
		t.Fatal(err)
	}
	first, client := ends(t, l)
	end, err := h.watch(first, func() { t.Error("a watch that had ended was told of its client") })
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	<-taken // the event has left the kernel and is not yet handled
	end()
	fd := descriptor(t, first)
	first.Close()
	var second net.Conn
	for range 64 { // the lowest free descriptor is given first
		for _, c := range both(ends(t, l)) {
			if descriptor(t, c) == fd {
				second = c
			}
		}
		if second != nil {
			break
		}
	}
	if second == nil {
		t.Fatalf("descriptor %d was not given to a connection", fd)
	}
	stop, err := h.watch(second, func() { t.Error("a client that is connected was taken for one that left") })
	if err != nil {
		t.Fatal(err)
	}
	go func() { // the loop calls harvested once more, for the pipe of close
		seen <- struct{}{}
		<-taken
		seen <- struct{}{}
	}()
	h.close()
	stop()
	if len(h.watches) != 0 {
		t.Errorf("%d watches are left", len(h.watches))
	}
}

func both(a, b net.Conn) []net.Conn { return []net.Conn{a, b} }

// Each watch is told about its own client, in any order.
func TestHangUpsManyConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h, err := newHangups(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	h.last = 1<<32 - 5 // keys of more than 32 bits follow
	left := make([]chan struct{}, 10)
	clients := make([]net.Conn, len(left))
	for i := range left {
		left[i] = make(chan struct{})
		var here net.Conn
		here, clients[i] = ends(t, l)
		end, err := h.watch(here, func() { close(left[i]) })
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	for _, i := range []int{7, 0, 9, 3} {
		clients[i].Close()
		<-left[i]
	}
	for _, i := range []int{1, 2, 4, 5, 6, 8} {
		select {
		case <-left[i]:
			t.Errorf("client %d is connected", i)
		default:
		}
	}
}
