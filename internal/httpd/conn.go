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
	// lingerStall and lingerTime bound how long a connection that the server ends is read on: until
	// its peer has paused for lingerStall or ended too, and for lingerTime in all.
	lingerStall = 500 * time.Millisecond
	lingerTime  = 2 * time.Second
)

// conn is a client's connection. It adds two things to what it wraps: end, which lets no more than
// what has arrived be read, and a Close that does not reset the connection under an answer its peer
// has not read yet. One goroutine reads and writes; end and cut may be called by others.
type conn struct {
	net.Conn
	ended atomic.Bool // by end
	over  atomic.Bool // the peer has ended it, or it broke
	once  sync.Once   // of Close
	gone  atomic.Bool // cut

	gathers  bool // writes are put together
	gathered []byte
}

// tlsConn is a conn over TLS. fasthttp shakes hands with what has these methods before it reads.
type tlsConn struct {
	*conn
	tls *tls.Conn
}

// Handshake implements fasthttp's interface of TLS connections.
func (c tlsConn) Handshake() error { return c.tls.Handshake() }

// ConnectionState implements fasthttp's interface of TLS connections.
func (c tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// newConn wraps an accepted connection. What it returns is comparable, as a map's key.
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

// Read implements net.Conn. Once end was called and all that had arrived is read, every call times
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

// gatherBytes is how much is put together before it is written.
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

// gather puts the writes that follow together into larger ones, until scatter: fasthttp sends every
// few KiB of an answer of unknown length by themselves, in two parts.
func (c *conn) gather() {
	c.gathers, c.gathered = true, make([]byte, 0, gatherBytes+8<<10)
}

// scatter writes what is left.
func (c *conn) scatter() {
	if c.gathers {
		c.gathers = false
		_ = c.flush() // the next write says what is wrong too
		c.gathered = nil
	}
}

// end lets the reader have what has arrived, and nothing that comes later. A deadline could not: a
// read after it returns nothing even where a request is waiting.
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

// cut closes the connection at once, whatever is on its way. Below TLS, which would wait for a peer
// that takes nothing.
func (c *conn) cut() {
	c.gone.Store(true)
	_ = plainConn(c).Close()
}

// Close implements net.Conn. It says that nothing more will be written and reads on for a moment: a
// connection that is closed on bytes nobody has read is reset, and the answer may be lost with it.
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

// plainConn is the connection below every wrapper.
func plainConn(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}
