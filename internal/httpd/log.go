package httpd

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/valyala/fasthttp"
)

// No line of the log holds a key, a text or the value of a header other than the request's id:
// neither do errors that quote what a client sent. What a client did wrong is told to that client.

// quiet is fasthttp's log. Its messages quote the bytes that could not be read, headers and bodies
// included, so that only the kind of failure is taken from them, at the debug level.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(_ string, args ...any) {
	peer, why := "", "fasthttp: other"
	for _, a := range args {
		switch v := a.(type) {
		case net.Addr:
			peer = v.String() // of the two addresses the client's is the last
		case error:
			why = connFailure(v)
		}
	}
	q.log.Debug("connection failed", "client", peer, "why", why)
}

// connFailure returns what became of a connection, in words of our own.
func connFailure(err error) string {
	var small *fasthttp.ErrSmallBuffer
	var broken fasthttp.ErrBrokenChunk
	switch {
	case os.IsTimeout(err) || isTimeout(err):
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the client ended it"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "reset or closed"
	case errors.As(err, &small):
		return "head too large"
	case errors.As(err, &broken):
		return "malformed chunk"
	case strings.HasPrefix(err.Error(), "tls:"):
		return "no TLS handshake"
	}
	return "not valid HTTP/1.1"
}
