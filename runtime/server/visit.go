package server

import (
	"context"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/worker"
)

// visit is what is noted about one request for its answer's headers, the access log and its span. It holds no text and no
// key. It belongs to the request's goroutine.
type visit struct {
	id      string
	start   time.Time
	key     int    // number of its API key, from 1; 0: none
	model   string // once it is known to be in the catalog
	items   int
	tokens  int
	outputs []string
	timings worker.Timings
	span    trace.Span // nil: no tracing, or not an inference route
	body    bool       // somebody has read the request's body, or tried to
	answer  share      // what its results take
	writing *writing   // the answer, where it is written after the handler
}

type visitKey struct{}

// maxRequestID bounds the ids that clients choose.
const maxRequestID = 256

// arrive begins a visit and puts the request's id on the answer: the client's own if it is visible ASCII, else a new one.
func (s *Server) arrive(ctx *fasthttp.RequestCtx) *visit {
	v := &visit{start: time.Now()}
	for _, name := range []string{"X-Request-ID", "X-SIE-Request-ID"} {
		if id := ctx.Request.Header.Peek(name); v.id == "" && len(id) > 0 && len(id) <= maxRequestID && visible(string(id)) {
			v.id = string(id)
		}
	}
	if v.id == "" {
		v.id = newID()
	}
	ctx.SetUserValue(visitKey{}, v)
	return v
}

// visitOf returns the visit of a request that arrive has seen; never nil.
func visitOf(ctx *fasthttp.RequestCtx) *visit {
	if v, ok := ctx.UserValue(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// note says what a request came to.
func note(ctx *fasthttp.RequestCtx, items, tokens int, outputs []string, t worker.Timings) {
	v := visitOf(ctx)
	v.items, v.tokens, v.outputs, v.timings = items, tokens, outputs, t
}

// depart ends a visit: ids on the answer, the span, the log. Once the server drains, the answer is its connection's last.
func (s *Server) depart(ctx *fasthttp.RequestCtx, v *visit) {
	h := &ctx.Response.Header
	if !v.body && !h.ConnectionClose() {
		s.discard(ctx) // what stays unread would be taken for the next request
	}
	if s.gate.closed() && !ctx.Hijacked() {
		ctx.SetConnectionClose()
	}
	h.Set("X-Request-ID", v.id)
	h.Set("X-SIE-Request-ID", v.id)
	failure := string(h.Peek("X-SIE-Error-Code"))
	if v.span != nil {
		h.Set("X-Trace-ID", v.span.SpanContext().TraceID().String())
		s.describe(v, ctx.Response.StatusCode(), failure)
		v.span.End()
	}
	if !s.opt.AccessLog {
		return
	}
	line := []any{"id", v.id, "method", string(ctx.Method()), "path", string(ctx.URI().PathOriginal()),
		"status", ctx.Response.StatusCode(), "error", failure, "model", v.model, "items", v.items, "tokens", v.tokens,
		"ms", api.Milliseconds(time.Since(v.start)), "bytes_in", max(ctx.Request.Header.ContentLength(), 0),
		"client", ctx.RemoteIP().String(), "sdk", caller(ctx).Version(), "key", v.key, "bytes_out"}
	if v.writing != nil { // the line waits for the end of the answer
		v.writing.done = func(bytes int64) { s.opt.Log.Info("request", append(line, bytes)...) }
		return
	}
	s.opt.Log.Info("request", append(line, len(ctx.Response.Body()))...)
}

// begin starts the span of an inference request, as part of the caller's trace if it names one.
func (s *Server) begin(ctx *fasthttp.RequestCtx, v *visit, name string) {
	if s.opt.Tracer == nil || name == "" {
		return
	}
	parent := propagation.TraceContext{}.Extract(context.Background(), carrier{&ctx.Request.Header})
	_, v.span = s.opt.Tracer.Start(parent, name, trace.WithSpanKind(trace.SpanKindServer))
}

// describe puts the reference's attributes on a span (server.md 1.14), never a text.
func (s *Server) describe(v *visit, status int, failure string) {
	t := v.timings
	attrs := []attribute.KeyValue{attribute.String("model", v.model), attribute.Int("batch_size", v.items),
		attribute.String("output_types", strings.Join(v.outputs, ",")), attribute.String("machine_profile", s.opt.MachineProfile),
		attribute.Int("http.response.status_code", status), attribute.String("request_id", v.id)}
	if failure != "" {
		attrs = append(attrs, attribute.String("error", failure))
	} else {
		attrs = append(attrs, attribute.Float64("timing.total_ms", api.Milliseconds(t.Total)), attribute.Float64("timing.queue_ms", api.Milliseconds(t.BatchWait)),
			attribute.Float64("timing.tokenization_ms", api.Milliseconds(t.Tokenize)), attribute.Float64("timing.inference_ms", api.Milliseconds(t.Inference)))
	}
	v.span.SetAttributes(attrs...)
	if status >= 500 {
		v.span.SetStatus(codes.Error, failure)
	}
}

// carrier reads a trace's context from a request's headers.
type carrier struct{ h *fasthttp.RequestHeader }

func (c carrier) Get(key string) string { return string(c.h.Peek(key)) }
func (c carrier) Set(string, string)    {}
func (c carrier) Keys() []string        { return nil }
