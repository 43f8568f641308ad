package obs

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span is the span of work that came in a message, with its trace's parent in text form. All
// methods of a nil Span do nothing. A Span belongs to one goroutine at a time.
type Span struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
}

// BeginSpan begins a span at a time, below the one that traceparent and tracestate name. It returns
// nil without a tracer, and where there is no valid parent: work that nobody traces starts no
// traces of its own.
func BeginSpan(
	t trace.Tracer, parent, state, name string, at time.Time, about ...attribute.KeyValue,
) *Span {
	if t == nil || parent == "" {
		return nil
	}
	in := propagation.TraceContext{}
	ctx := in.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	ctx, span := t.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(about...))
	return &Span{tracer: t, ctx: ctx, span: span}
}

// Carry returns the traceparent and tracestate for work below the span. A nil Span hands on those
// that it is given.
func (s *Span) Carry(parent, state string) (traceparent, tracestate string) {
	if s == nil {
		return parent, state
	}
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(s.ctx, out)
	return out["traceparent"], out["tracestate"]
}

// Child records a part of the span that has ended.
func (s *Span) Child(name string, from, to time.Time, about ...attribute.KeyValue) {
	if s == nil || to.Before(from) {
		return
	}
	_, child := s.tracer.Start(s.ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about...))
	child.End(trace.WithTimestamp(to))
}

// End ends the span. code is that of the error it ended with, or "".
func (s *Span) End(at time.Time, code string, about ...attribute.KeyValue) {
	if s == nil {
		return
	}
	s.span.SetAttributes(about...)
	if code != "" {
		s.span.SetStatus(codes.Error, code)
	}
	s.span.End(trace.WithTimestamp(at))
}
