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

// No line of the log holds a key, a text or the value of a header, except the request's id. That
// includes errors that quote the client's bytes. A client's mistakes are reported to that client.

// fasthttpLogger is the logger that fasthttp gets. fasthttp's messages quote the bytes that could
// not be read, headers and bodies included, so fasthttpLogger logs only the kind of failure, at the
// debug level.
type fasthttpLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q fasthttpLogger) Printf(_ string, args ...any) {
	peer, why := "", "fasthttp: other"
	for _, a := range args {
		switch v := a.(type) {
		case net.Addr:
			peer = v.String() // the client's address is the last of the two
		case error:
			why = connFailure(v)
		}
	}
	q.log.Debug("connection failed", "client", peer, "why", why)
}

// connFailure returns why a connection failed, without fasthttp's words.
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
