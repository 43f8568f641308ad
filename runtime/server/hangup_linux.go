package server

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups notices clients that leave while their request is being worked on. fasthttp only reads a connection again
// once the handler has returned, so the connection's descriptor is watched by an epoll set of our own for
// EPOLLRDHUP: the peer closed, or closed its sending side. A client that half-closes after its request counts as gone.
//
// One goroutine, stopped by close. Safe for concurrent use.
type hangups struct {
	epfd int
	stop [2]int // a pipe: closing the write end ends the goroutine
	done chan struct{}

	mu      sync.Mutex
	watches map[int32]func() // by descriptor
}

var errNoDescriptor = errors.New("server: connection has no descriptor")

func newHangups() (*hangups, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	h := &hangups{epfd: ep, done: make(chan struct{}), watches: make(map[int32]func())}
	if err := unix.Pipe2(h.stop[:], unix.O_CLOEXEC); err != nil {
		unix.Close(ep)
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLHUP, Fd: int32(h.stop[0])}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, h.stop[0], &ev); err != nil {
		unix.Close(ep)
		unix.Close(h.stop[0])
		unix.Close(h.stop[1])
		return nil, err
	}
	go h.loop()
	return h, nil
}

// watch calls gone, at most once, when c's peer hangs up. The returned function ends the watch; after it returns gone
// is not called any more. It must be called before the connection is used for the next request.
func (h *hangups) watch(c net.Conn, gone func()) (end func(), err error) {
	sc, ok := plainConn(c).(syscall.Conn)
	if !ok {
		return func() {}, errNoDescriptor
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() {}, err
	}
	var fd int32
	var ctlErr error
	err = raw.Control(func(d uintptr) {
		fd = int32(d)
		h.mu.Lock()
		h.watches[fd] = gone
		h.mu.Unlock()
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: fd}
		if ctlErr = unix.EpollCtl(h.epfd, unix.EPOLL_CTL_ADD, int(d), &ev); errors.Is(ctlErr, unix.EEXIST) {
			ctlErr = unix.EpollCtl(h.epfd, unix.EPOLL_CTL_MOD, int(d), &ev)
		}
	})
	if err = errors.Join(err, ctlErr); err != nil {
		h.forget(fd)
		return func() {}, err
	}
	return func() {
		h.forget(fd)
		// The descriptor is taken out inside Control, so that it can't be closed and reused in between. When the
		// connection is closed already the kernel has removed it itself.
		_ = raw.Control(func(d uintptr) { _ = unix.EpollCtl(h.epfd, unix.EPOLL_CTL_DEL, int(d), nil) })
	}, nil
}

// plainConn is the connection below TLS.
func plainConn(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

func (h *hangups) forget(fd int32) {
	h.mu.Lock()
	delete(h.watches, fd)
	h.mu.Unlock()
}

func (h *hangups) loop() {
	defer close(h.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(h.epfd, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // the set was closed under us: only close does that
		}
		for _, e := range events[:n] {
			if e.Fd == int32(h.stop[0]) {
				return
			}
			h.mu.Lock()
			if gone := h.watches[e.Fd]; gone != nil {
				delete(h.watches, e.Fd)
				gone() // under the lock, so that the end function can promise that it won't be called later
			}
			h.mu.Unlock()
		}
	}
}

func (h *hangups) close() {
	unix.Close(h.stop[1])
	<-h.done
	unix.Close(h.stop[0])
	unix.Close(h.epfd)
}
