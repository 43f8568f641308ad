package queue

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
)

// trace begins the span of a request's way through the queue and puts it into the request's work,
// so that the worker's spans are below it. The function that it returns ends the span, with a span
// for the publish and one for the wait in the queue below it.
func (q *Queue) trace(h inference.Head, r *request) func(*request, error) {
	if q.opt.Tracer == nil {
		return func(*request, error) {}
	}
	in := propagation.TraceContext{}
	parent := in.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": h.TraceParent, "tracestate": h.TraceState})
	ctx, span := q.opt.Tracer.Start(parent, "queue", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithTimestamp(r.began))
	out := propagation.MapCarrier{}
	in.Inject(ctx, out)
	r.item.TraceParent, r.item.TraceState = out["traceparent"], out["tracestate"]
	return func(r *request, err error) {
		span.SetAttributes(attribute.String("sie.lane", r.line.lane.String()),
			attribute.String("sie.model", r.line.model), attribute.String("sie.work_request_id", r.id),
			attribute.Int("sie.slices", len(r.slices)), attribute.Int("sie.items", len(r.items)))
		if !r.placed.IsZero() {
			q.child(ctx, "queue publish", r.began, r.placed)
		}
		if s := r.waited(); s != nil {
			q.child(ctx, "queue wait", s.began, s.takenAt)
		}
		if err != nil {
			span.SetStatus(codes.Error, string(errs.As(err).Code))
		}
		span.End()
	}
}

// child records a span below another one.
func (q *Queue) child(ctx context.Context, name string, from, to time.Time) {
	_, span := q.opt.Tracer.Start(ctx, name, trace.WithTimestamp(from))
	span.End(trace.WithTimestamp(to))
}

// waited returns the slice that waited longest for a worker, or nil.
func (r *request) waited() (longest *slice) {
	for i := range r.slices {
		s := &r.slices[i]
		if !s.takenAt.IsZero() &&
			(longest == nil || s.takenAt.Sub(s.began) > longest.takenAt.Sub(longest.began)) {
			longest = s
		}
	}
	return longest
}

// count puts a request that has ended into the metrics.
func (q *Queue) count(r *request, items int) {
	op := r.item.Operation
	q.metrics.published.WithLabelValues(op).Observe(float64(items))
	if !r.placed.IsZero() {
		q.metrics.publish.WithLabelValues(op).Observe(r.placed.Sub(r.began).Seconds())
	}
	q.metrics.wait.WithLabelValues(op).Observe(time.Since(r.began).Seconds())
}
