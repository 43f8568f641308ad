package httpd

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/accept"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// limitedListener is a listener that bounds the number of open connections. A connection over the
// bound is answered with a retryable 503 and closed. Close may be called more than once.
type limitedListener struct {
	net.Listener
	open func() int
	max  int
	log  *slog.Logger

	once   sync.Once
	closed error
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.once.Do(func() { l.closed = l.Listener.Close() })
	return l.closed
}

// Accept implements net.Listener. Its errors stay: one would end the server.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := accept.Next(l.Listener.Accept, func(err error) {
			l.log.Warn("no connection can be accepted now; it is tried again", "error", err)
		})
		if err != nil {
			return nil, err
		}
		if l.open() < l.max {
			return newConn(c), nil
		}
		refuseConn(c, l.max)
	}
}

// refuseTime bounds how long a refused connection holds up the listener.
const refuseTime = 5 * time.Millisecond

func refuseConn(c net.Conn, limit int) {
	defer c.Close()
	e := errs.FullQueue(limit, 1, limit)
	e.Message = fmt.Sprintf("The server has %d open connections, its limit; close idle ones or retry", limit)
	status, headers, body := dialect.Render(e, dialect.Caller{}, dialect.RouteNative)
	answer := fmt.Appendf(nil,
		"HTTP/1.1 %d Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n",
		status, len(body))
	id := api.NewID()
	for _, h := range append(headers, dialect.Header{Name: "X-Request-ID", Value: id},
		dialect.Header{Name: "X-SIE-Request-ID", Value: id}) {
		answer = fmt.Appendf(answer, "%s: %s\r\n", h.Name, h.Value)
	}
	answer = append(append(answer, "\r\n"...), body...)
	_ = c.SetDeadline(time.Now().Add(refuseTime))
	if _, err := c.Write(answer); err != nil {
		return
	}
	// Closing with unread bytes would reset the connection, and the answer would be lost.
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = c.Read(make([]byte, 16<<10))
}
