package httpd

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups notices clients that leave while their request is being worked on. fasthttp reads a
// connection again only after the handler has returned, so an epoll set of this package watches the
// connection's descriptor for EPOLLRDHUP: the peer closed it, or closed its sending side. A client
// that half-closes after its request counts as gone.
//
// One goroutine, stopped by close. Safe for concurrent use.
type hangups struct {
	epfd int
	stop [2]int // a pipe: closing the write end ends the goroutine
	done chan struct{}

	mu      sync.Mutex
	last    uint64            // the key of the newest watch
	watches map[uint64]func() // by key

	// harvested, if set, is called after events were taken from the kernel and before any is
	// handled.
	harvested func()
}

// stopKey is the key of the pipe's events. Watches have the keys from 1 on.
const stopKey = 0

// event returns an epoll event that carries key. A descriptor cannot be the key: an event that was
// taken from the kernel before its connection was closed would then reach the next connection with
// the same descriptor.
func event(events uint32, key uint64) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(key)), Pad: int32(uint32(key >> 32))}
}

// eventKey returns the key that an event carries.
func eventKey(e *unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

var errNoDescriptor = errors.New("httpd: connection has no descriptor")

// newHangups starts the loop. harvested is for tests; others pass nil.
func newHangups(harvested func()) (*hangups, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	h := &hangups{epfd: ep, done: make(chan struct{}), watches: make(map[uint64]func()), harvested: harvested}
	if err := unix.Pipe2(h.stop[:], unix.O_CLOEXEC); err != nil {
		unix.Close(ep)
		return nil, err
	}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, h.stop[0], event(unix.EPOLLHUP, stopKey)); err != nil {
		unix.Close(ep)
		unix.Close(h.stop[0])
		unix.Close(h.stop[1])
		return nil, err
	}
	go h.loop()
	return h, nil
}

// watch calls gone, at most once, when c's peer hangs up. The returned function ends the watch;
// after it returns, gone is not called any more. Call it before the connection is used for the next
// request.
func (h *hangups) watch(c net.Conn, gone func()) (end func(), err error) {
	sc, ok := plainConn(c).(syscall.Conn)
	if !ok {
		return func() {}, errNoDescriptor
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() {}, err
	}
	h.mu.Lock()
	h.last++
	key := h.last
	h.watches[key] = gone
	h.mu.Unlock()
	var ctlErr error
	err = raw.Control(func(d uintptr) {
		ev := event(unix.EPOLLRDHUP|unix.EPOLLONESHOT, key)
		if ctlErr = unix.EpollCtl(h.epfd, unix.EPOLL_CTL_MOD, int(d), ev); errors.Is(ctlErr, unix.ENOENT) {
			ctlErr = unix.EpollCtl(h.epfd, unix.EPOLL_CTL_ADD, int(d), ev) // its first request
		}
	})
	if err = errors.Join(err, ctlErr); err != nil {
		h.forget(key)
		return func() {}, err
	}
	// The descriptor stays in the set until it is closed, so that the connection's next request
	// only changes its key. An event between two requests has a key that nobody watches.
	return func() { h.forget(key) }, nil
}

// count returns the number of watches.
func (h *hangups) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches)
}

func (h *hangups) forget(key uint64) {
	h.mu.Lock()
	delete(h.watches, key)
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
			return // the set is closed; only close does that
		}
		if h.harvested != nil {
			h.harvested()
		}
		for i := range events[:n] {
			key := eventKey(&events[i])
			if key == stopKey {
				return
			}
			h.mu.Lock()
			if gone := h.watches[key]; gone != nil {
				delete(h.watches, key)
				gone() // under the lock, so that it is never called after the end function has returned
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
