package httpd

import (
	"context"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// Request is one request and its answer: fasthttp's context and the server's data about it. It
// belongs to the handler's goroutine until the handler returns; nothing of it may be kept.
type Request struct {
	*fasthttp.RequestCtx
	// ID is the client's id if it is visible ASCII of at most 256 bytes, else a new one. Every
	// answer carries it.
	ID string
	// Note is filled in by handlers, for the access log and the span.
	Note Note

	server   *Server
	start    time.Time
	tenant   *tenant.Tenant
	span     trace.Span  // nil: no tracing, or not a route with a span
	bodyRead bool        // the request's body was read, or reading it was tried
	maxBody  int64       // of the route; 0: that of the server
	work     *admit.Work // set by Do, once the request is admitted
	writing  *writing    // the answer, if it is written after the handler returns
}

// Note describes a request for the access log and the span. It holds no text and no key.
type Note struct {
	Model   string // set once it is known to be in the catalog
	Items   int
	Tokens  int
	Outputs []string
	Timings api.Timings

	Pool, Profile, Worker string // that answered, at a gateway
	Operation             string // what was asked of the worker, by its name in metrics
}

// visible reports whether s is visible ASCII.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// maxRequestID bounds the length of the ids that clients choose, in bytes.
const maxRequestID = 256

// newRequest begins a request: it makes the Request and chooses its id.
func (s *Server) newRequest(ctx *fasthttp.RequestCtx) *Request {
	r := &Request{RequestCtx: ctx, server: s, start: time.Now()}
	for _, name := range []string{"X-Request-ID", "X-SIE-Request-ID"} {
		if id := ctx.Request.Header.Peek(name); r.ID == "" && len(id) > 0 && len(id) <= maxRequestID &&
			visible(string(id)) {
			r.ID = string(id)
		}
	}
	if r.ID == "" {
		r.ID = api.NewID()
	}
	return r
}

// Header returns a header of the request, "" if it is absent.
func (r *Request) Header(name string) string { return string(r.Request.Header.Peek(name)) }

// Caller returns the SDK that sent the request, as far as the headers tell.
func (r *Request) Caller() dialect.Caller { return dialect.ParseCaller(r.Header("X-SIE-SDK-Version")) }

// Fail answers with err in the caller's dialect.
func (r *Request) Fail(kind dialect.RouteKind, err *errs.Error) {
	r.Answer(dialect.Render(err, r.Caller(), kind))
}

// Answer answers with status, headers and body. body must not change afterwards.
func (r *Request) Answer(status int, headers []dialect.Header, body []byte) {
	r.SetStatusCode(status)
	for _, h := range headers {
		r.Response.Header.Set(h.Name, h.Value)
	}
	r.Response.SetBodyRaw(body)
}

// Plain answers with a line of text.
func (r *Request) Plain(status int, text string) {
	r.SetStatusCode(status)
	r.SetContentType("text/plain; charset=utf-8")
	r.SetBodyString(text)
}

// Unwanted reads and throws away, within bounds, the body of a refused inference request. Its
// sender had good reason to send it, and often reads the answer only afterwards.
func (r *Request) Unwanted() { r.server.bodies.drain(r, r.server.bodies.drainFor) }

// discard reads and throws away a body that no handler needs, so that the connection stays usable.
// If that would take long, it closes the connection.
func (r *Request) discard() { r.server.bodies.drain(r, r.server.bodies.brief) }

// finish ends a request: it sets the ids on the answer, ends the span and writes the log. Once the
// server drains, the answer is the last of its connection.
func (r *Request) finish() {
	s := r.server
	h := &r.Response.Header
	if !r.bodyRead && !h.ConnectionClose() {
		r.discard() // unread bytes would be taken for the next request
	}
	if (s.retired.Load() || s.gate.Draining()) && !r.Hijacked() {
		r.SetConnectionClose()
	}
	h.Set("X-Request-ID", r.ID)
	h.Set("X-SIE-Request-ID", r.ID)
	failure := string(h.Peek("X-SIE-Error-Code"))
	if r.span != nil {
		h.Set("X-Trace-ID", r.span.SpanContext().TraceID().String())
		r.describe(r.Response.StatusCode(), failure)
		r.span.End()
	}
	if s.opt.AuditLog {
		r.audit()
	}
	if !s.opt.AccessLog {
		return
	}
	line := []any{
		"id", r.ID, "method", string(r.Method()), "path", string(r.URI().PathOriginal()), "status",
		r.Response.StatusCode(), "error", failure, "model", r.Note.Model, "items", r.Note.Items, "tokens",
		r.Note.Tokens, "ms", api.Milliseconds(time.Since(r.start)), "bytes_in",
		max(r.Request.Header.ContentLength(), 0), "client", r.RemoteIP().String(), "sdk",
		r.Caller().Version(), "key", r.tenant.Key(), "bytes_out",
	}
	if r.writing != nil { // the line is written when the answer is sent
		r.writing.done = func(bytes int64) { s.opt.Log.Info("request", append(line, bytes)...) }
		return
	}
	s.opt.Log.Info("request", append(line, len(r.Response.Body()))...)
}

// begin starts the span of a request, as part of the caller's trace if the request names one.
func (r *Request) begin(name string) {
	if r.server.opt.Tracer == nil || name == "" {
		return
	}
	parent := propagation.TraceContext{}.Extract(context.Background(), carrier{&r.Request.Header})
	_, r.span = r.server.opt.Tracer.Start(parent, name, trace.WithSpanKind(trace.SpanKindServer))
}

// Trace returns the traceparent and tracestate that work for this request goes on with: those of
// its own span, or without one the caller's, if they are valid. Both are "" if there is no trace.
func (r *Request) Trace() (parent, state string) {
	if r.span == nil && len(r.Request.Header.Peek("traceparent")) == 0 {
		return "", ""
	}
	in := propagation.TraceContext{}
	ctx := in.Extract(context.Background(), carrier{&r.Request.Header})
	if r.span != nil {
		ctx = trace.ContextWithSpan(ctx, r.span)
	}
	out := propagation.MapCarrier{}
	in.Inject(ctx, out)
	return out["traceparent"], out["tracestate"]
}

// describe sets the reference's attributes on a span (server.md 1.14), never a text.
func (r *Request) describe(status int, failure string) {
	n, t := &r.Note, r.Note.Timings
	attrs := append([]attribute.KeyValue{
		attribute.String("model", n.Model), attribute.Int("batch_size", n.Items),
		attribute.String("output_types", strings.Join(n.Outputs, ",")),
		attribute.Int("http.response.status_code", status), attribute.String("request_id", r.ID),
	}, r.server.opt.SpanAttributes...)
	if failure != "" {
		attrs = append(attrs, attribute.String("error", failure))
	} else {
		attrs = append(attrs, attribute.Float64("timing.total_ms", api.Milliseconds(t.Total)),
			attribute.Float64("timing.queue_ms", api.Milliseconds(t.BatchWait)),
			attribute.Float64("timing.tokenization_ms", api.Milliseconds(t.Tokenize)),
			attribute.Float64("timing.inference_ms", api.Milliseconds(t.Inference)))
	}
	r.span.SetAttributes(attrs...)
	if status >= 500 {
		r.span.SetStatus(codes.Error, failure)
	}
}

// carrier reads a trace's context from a request's headers.
type carrier struct{ h *fasthttp.RequestHeader }

func (c carrier) Get(key string) string { return string(c.h.Peek(key)) }
func (c carrier) Set(string, string)    {}
func (c carrier) Keys() []string        { return nil }
