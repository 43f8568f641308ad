package httpd

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/errs"
)

// checkFraming refuses a head that a proxy in front may read as a different request, because a part
// of it could then be taken for another client's request (RFC 9112, 2.2, 5.2, 6.1 and 6.3). The
// caller then closes the connection. It checks from the second line on that lines end in CRLF.
// badHead answers heads that fasthttp cannot read at all.
func checkFraming(h *fasthttp.RequestHeader) *errs.Error {
	if !bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) {
		e := errs.Invalid("headers", "the server speaks HTTP/1.1")
		e.Status = fasthttp.StatusHTTPVersionNotSupported
		return e
	}
	length, coding := false, ""
	for rest := h.RawHeaders(); len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		line := rest[:end]
		rest = rest[end+1:]
		if end == 0 || line[end-1] != '\r' {
			return errs.Invalid("headers", "a line of the request's head does not end in CRLF")
		}
		if line[0] == ' ' || line[0] == '\t' {
			return errs.Invalid("headers", "a header of the request goes on in another line")
		}
		switch name, value, _ := bytes.Cut(line, []byte(":")); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length = true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			coding = strings.ToLower(strings.TrimSpace(string(value)))
		}
	}
	switch {
	case coding == "":
	case length:
		return errs.Invalid("headers", "the request has both Content-Length and Transfer-Encoding")
	case coding != "chunked":
		return errs.Invalid("headers", "the only Transfer-Encoding of a request is chunked")
	case !h.IsHTTP11():
		return errs.Invalid("headers", "a request with Transfer-Encoding must be HTTP/1.1")
	}
	return nil
}

// CheckEncoding refuses bodies in a content coding. The value "utf-8" is accepted: some clients
// mean the charset.
func (r *Request) CheckEncoding() *errs.Error {
	h := &r.Request.Header
	if len(h.Peek("Content-Encoding")) == 0 {
		return nil
	}
	for _, value := range h.PeekAll("Content-Encoding") {
		switch strings.ToLower(string(value)) {
		case "", "identity", "utf-8", "utf8":
		default:
			e := errs.Invalid("Content-Encoding",
				"request bodies must not be compressed or otherwise encoded: send no Content-Encoding")
			e.Status = fasthttp.StatusUnsupportedMediaType
			return e
		}
	}
	return nil
}
