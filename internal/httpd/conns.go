package httpd

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// conns tracks the open connections, without those that became status sockets. Safe for concurrent
// use.
type conns struct {
	mu   sync.Mutex
	open map[net.Conn]bool // the value: idle, between two requests
	// lost holds what to call when a connection that is to be handed over is closed before that.
	// It may not block.
	lost map[net.Conn]func()
}

// handOver has f called unless fasthttp hands the connection over: its answer could not be written.
func (c *conns) handOver(conn net.Conn, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = make(map[net.Conn]func())
	}
	c.lost[conn] = f
}

// note records a change of state; fasthttp calls it.
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
		if f := c.lost[conn]; f != nil && state == fasthttp.StateClosed {
			f()
		}
		delete(c.open, conn)
		delete(c.lost, conn)
	}
}

// count returns the number of open connections.
func (c *conns) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// each calls f for every open connection, or only for the idle ones, and returns their number. f
// must not block.
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

// drainTick is how often drain looks at the connections.
const drainTick = 20 * time.Millisecond

// drain waits until no connection is open, or until ctx ends. From idleBy on it ends connections
// between two requests, from allBy on every connection. A request that has arrived is still
// answered.
func (c *conns) drain(ctx context.Context, idleBy, allBy time.Time) {
	tick := time.NewTicker(drainTick)
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

// cut closes all open connections at once and returns their number.
func (c *conns) cut() int { return c.each(false, ender.cut) }
