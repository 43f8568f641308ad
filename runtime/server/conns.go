package server

import (
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// conns are the open connections. fasthttp waits at its end for all that are not idle between two requests, and so for a
// client that has sent half a request, or connected and sent nothing. Safe for concurrent use.
type conns struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// note is fasthttp's hook for changes of state.
func (c *conns) note(conn net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		c.mu.Lock()
		if c.open == nil {
			c.open = make(map[net.Conn]struct{})
		}
		c.open[conn] = struct{}{}
		c.mu.Unlock()
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		c.mu.Lock()
		delete(c.open, conn)
		c.mu.Unlock()
	}
}

// hurryTick is how often deadlines are set again while a server waits for its connections: whoever reads one sets its own.
const hurryTick = 50 * time.Millisecond

// hurry lets nothing be read from any connection after by, until stop is closed. Answers may still be written.
func (c *conns) hurry(by time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(hurryTick)
	defer tick.Stop()
	for {
		c.each(func(conn net.Conn) { _ = conn.SetReadDeadline(by) })
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// close closes all of them, and returns how many there were.
func (c *conns) close() (n int) {
	c.each(func(conn net.Conn) {
		_ = plainConn(conn).Close() // below TLS, which would wait for a peer that takes nothing
		n++
	})
	return n
}

func (c *conns) each(f func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		f(conn)
	}
}
