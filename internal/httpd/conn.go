package httpd

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerStall and lingerTime bound how long the server reads on after it has ended a
	// connection: until the peer ends it too or pauses for lingerStall, and for lingerTime in all.
	lingerStall = 500 * time.Millisecond
	lingerTime  = 2 * time.Second
)

// conn is a client's connection. It adds two things to the connection it wraps. After end, only
// bytes that have already arrived can be read. Close does not reset the connection while its peer
// may still have an answer to read. One goroutine reads and writes; other goroutines may call end
// and cut.
type conn struct {
	net.Conn
	ended atomic.Bool // by end
	over  atomic.Bool // the peer has ended it, or it broke
	once  sync.Once   // of Close
	gone  atomic.Bool // cut

	gathers  bool // small writes are combined
	gathered []byte
}

// tlsConn is a conn over TLS. Its methods make fasthttp do the handshake before it reads.
type tlsConn struct {
	*conn
	tls *tls.Conn
}

// Handshake implements fasthttp's interface of TLS connections.
func (c tlsConn) Handshake() error { return c.tls.Handshake() }

// ConnectionState implements fasthttp's interface of TLS connections.
func (c tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// newConn wraps an accepted connection. The result is comparable, so it can be the key of a map.
func newConn(c net.Conn) net.Conn {
	own := &conn{Conn: c}
	if t, ok := c.(*tls.Conn); ok {
		return tlsConn{own, t}
	}
	return own
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// ender is a connection that end may be called on.
type ender interface {
	end()
	cut()
}

// Read implements net.Conn. After end, once all bytes that had arrived are read, every call times
// out.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil || os.IsTimeout(err):
	case c.ended.Load():
		err = os.ErrDeadlineExceeded
	default:
		c.over.Store(true)
	}
	return n, err
}

// gatherBytes is how many bytes are combined before they are written.
const gatherBytes = 64 << 10

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if !c.gathers {
		return c.Conn.Write(p)
	}
	c.gathered = append(c.gathered, p...)
	if len(c.gathered) < gatherBytes {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *conn) flush() error {
	_, err := c.Conn.Write(c.gathered)
	c.gathered = c.gathered[:0]
	return err
}

// gather combines the writes that follow into larger ones, until scatter. Without it fasthttp sends
// every few KiB of an answer of unknown length on their own, in two writes.
func (c *conn) gather() {
	c.gathers, c.gathered = true, make([]byte, 0, gatherBytes+8<<10)
}

// scatter writes the remaining bytes and stops combining writes.
func (c *conn) scatter() {
	if c.gathers {
		c.gathers = false
		_ = c.flush() // the next write returns the error too
		c.gathered = nil
	}
}

// end lets the reader have the bytes that have arrived, and none that come later. A deadline would
// not do: after it a read returns nothing even if a request has arrived.
func (c *conn) end() {
	if c.ended.Swap(true) {
		return
	}
	if half, ok := plainConn(c).(interface{ CloseRead() error }); ok {
		_ = half.CloseRead()
		return
	}
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
}

// cut closes the connection at once, whatever is still being sent. It closes below TLS, which would
// wait for a peer that reads nothing.
func (c *conn) cut() {
	c.gone.Store(true)
	_ = plainConn(c).Close()
}

// Close implements net.Conn. It first ends the sending side and reads on for a moment. Closing a
// connection with unread bytes would reset it, and the answer might be lost.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		if !c.over.Load() && !c.gone.Load() {
			c.linger()
		}
		err = c.Conn.Close()
	})
	return err
}

func (c *conn) linger() {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerStall))
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	plain := plainConn(c)
	half, ok := plain.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buf := lingerBuffers.Get().(*[4096]byte)
	defer lingerBuffers.Put(buf)
	for last := time.Now().Add(lingerTime); ; {
		by := time.Now().Add(lingerStall)
		if by.After(last) {
			by = last
		}
		if plain.SetReadDeadline(by) != nil {
			return
		}
		if _, err := io.ReadAtLeast(plain, buf[:], 1); err != nil {
			return
		}
	}
}

var lingerBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// plainConn returns the connection below every wrapper.
func plainConn(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}
