package httpd

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// conns are the open connections, those that became status sockets left out. Safe for concurrent
// use.
type conns struct {
	mu   sync.Mutex
	open map[net.Conn]bool // and whether each is idle: between two requests
}

// note is fasthttp's hook for changes of state.
func (c *conns) note(conn net.Conn, state fasthttp.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case fasthttp.StateNew, fasthttp.StateActive, fasthttp.StateIdle:
		if c.open == nil {
			c.open = make(map[net.Conn]bool)
		}
		c.open[conn] = state == fasthttp.StateIdle
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		delete(c.open, conn)
	}
}

// count returns how many are open.
func (c *conns) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// each calls f for every open connection, or for those that are idle only. f must not wait.
func (c *conns) each(idle bool, f func(ender)) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, isIdle := range c.open {
		if e, ok := conn.(ender); ok && (isIdle || !idle) {
			f(e)
			n++
		}
	}
	return n
}

// windTick is how often wind looks at the connections.
const windTick = 20 * time.Millisecond

// wind waits until none is open, or ctx ends. From idleBy on it ends those between two requests,
// from allBy on every one: a request that has arrived is answered all the same.
func (c *conns) wind(ctx context.Context, idleBy, allBy time.Time) {
	tick := time.NewTicker(windTick)
	defer tick.Stop()
	for c.count() > 0 {
		switch now := time.Now(); {
		case now.After(allBy):
			c.each(false, ender.end)
		case now.After(idleBy):
			c.each(true, ender.end)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// cut closes all of them at once, and returns how many there were.
func (c *conns) cut() int { return c.each(false, ender.cut) }
