package httpd

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// Route describes one entry of a server's table of routes.
type Route struct {
	Method string
	// a path that ends in "/", except "/" itself, takes the rest of the request's path as a name
	Path  string
	Serve func(r *Request, rest string)
	Kind  dialect.RouteKind // selects the format of errors before the handler runs
	Span  string            // name of its trace span; "": none
	Open  bool              // it needs no API key
	// MaxBody bounds a request's body, in bytes [Options.MaxBodyBytes]
	MaxBody int64
	Roles   tenant.Role // one of them is needed [tenant.Inference]
}

func (r *Route) match(path string) (rest string, ok bool) {
	if r.Path != "/" && strings.HasSuffix(r.Path, "/") {
		rest, ok = strings.CutPrefix(path, r.Path)
		return rest, ok && rest != ""
	}
	return "", path == r.Path
}

// handle serves every request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	r := s.newRequest(ctx)
	defer r.finish()
	defer func() {
		if p := recover(); p != nil {
			s.opt.Log.Error("panic in a handler", "panic", p, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			s.cors(r)
			ctx.SetConnectionClose() // how much of the body was read is unknown
			r.Fail(dialect.RouteNative, errs.Internal(nil))
		}
	}()
	if s.cors(r) {
		r.discard()
		return
	}
	if err := checkFraming(&ctx.Request.Header); err != nil {
		ctx.SetConnectionClose()
		r.Fail(dialect.RouteNative, err)
		return
	}
	// The path is read as it was sent. Segments such as "//" and ".." are not cleaned and not
	// redirected: they are part of a name that does not exist.
	path, err := url.PathUnescape(string(ctx.URI().PathOriginal()))
	if err != nil {
		r.Fail(dialect.RouteNative, errs.Invalid("path", "the path is not valid percent-encoding"))
		return
	}
	route, rest, allowed := s.find(ctx, path)
	if route == nil {
		s.unrouted(r, path, allowed)
		return
	}
	r.maxBody = route.MaxBody
	if route.Method == "GET" {
		r.discard()
	}
	r.begin(route.Span)
	if !route.Open && !r.admit(route.Kind, route.Roles) {
		return
	}
	route.Serve(r, rest)
}

// find returns the route of a request and what of its path is a name. Without a route, allowed is
// another method that one serves at the path, "" if there is none.
func (s *Server) find(ctx *fasthttp.RequestCtx, path string) (route *Route, rest, allowed string) {
	method := string(ctx.Method())
	if method == "HEAD" {
		method = "GET"
	}
	for i := range s.routes {
		route := &s.routes[i]
		rest, ok := route.match(path)
		if ok && route.Method == method {
			return route, rest, ""
		}
		if ok {
			allowed = route.Method
		}
	}
	return nil, "", allowed
}

// unrouted answers a request whose path no route serves with this method. allowed is another method
// that a route serves there, "" if there is none.
func (s *Server) unrouted(r *Request, path, allowed string) {
	if !r.admit(dialect.RouteNative, tenant.Inference|tenant.Metrics) {
		return
	}
	r.discard()
	if s.opt.Unrouted != nil {
		if kind, err := s.opt.Unrouted(path); err != nil {
			r.Fail(kind, err)
			return
		}
	}
	if allowed != "" {
		r.Response.Header.Set("Allow", allowed)
		r.Fail(dialect.RouteNative, errs.WrongMethod())
		return
	}
	r.Fail(dialect.RouteNative, errs.NoRoute())
}

// expect answers a client that asks whether to send its body ("Expect: 100-continue"). It refuses a
// body that would be refused later: for a wrong key, for its size, or because the server drains.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	var e *errs.Error
	limit, open := s.bodies.maxOne, false
	if path, err := url.PathUnescape(string(ctx.URI().PathOriginal())); err == nil {
		if route, _, _ := s.find(ctx, path); route != nil {
			limit, open = cmp.Or(route.MaxBody, limit), route.Open
		}
	}
	if !open {
		_, e = s.authenticate(&ctx.Request.Header)
	}
	switch {
	case e != nil:
	case int64(ctx.Request.Header.ContentLength()) > limit:
		e = errs.BodyTooLarge(limit)
	case s.gate.Draining():
		e = errs.ShuttingDown()
	default:
		return fasthttp.StatusContinue
	}
	r := s.newRequest(ctx)
	r.Fail(dialect.RouteNative, e)
	r.finish()
	return e.Status
}

// badHead answers a request whose head, or the first bytes of its body, could not be read.
func (s *Server) badHead(ctx *fasthttp.RequestCtx, err error) {
	e := errs.Invalid("headers", "the request's head is not valid HTTP/1.1")
	var small *fasthttp.ErrSmallBuffer
	var ne net.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		e = errs.Invalid("", "the connection was closed before the whole request had arrived")
	case errors.As(err, &small):
		e = errs.Invalidf("headers", "the request's head is larger than %d bytes", s.opt.MaxHeadBytes)
		e.Status = fasthttp.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &ne) && ne.Timeout() && s.gate.Draining():
		e = errs.ShuttingDown()
	case errors.As(err, &ne) && ne.Timeout():
		e = errs.Invalidf("headers",
			"the request's head did not arrive within %v, or the first byte of its body within %v of it",
			s.http.ReadTimeout, s.bodies.stall)
		e.Status = fasthttp.StatusRequestTimeout
	}
	ctx.SetConnectionClose()
	r := s.newRequest(ctx)
	r.Fail(dialect.RouteNative, e)
	r.finish()
}
