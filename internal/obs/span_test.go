package obs

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Spans of messages form one tree below the caller's span, with the times that they are given.
func TestSpansOfMessages(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(memory)).Tracer("t")
	begin := time.Unix(1000, 0)
	outer := BeginSpan(tracer, caller, "a=b", "outer", begin, attribute.Int("items", 3))
	parent, state := outer.Carry("", "")
	inner := BeginSpan(tracer, parent, state, "inner", begin.Add(1))
	inner.Child("part", begin.Add(2), begin.Add(3))
	inner.Child("never", begin.Add(3), begin.Add(2))
	inner.End(begin.Add(4), "QUEUE_FULL", attribute.Int("more", 1))
	outer.End(begin.Add(5), "")
	spans := memory.GetSpans()
	if len(spans) != 3 || state != "a=b" {
		t.Fatalf("%d spans, state %q", len(spans), state)
	}
	for i, want := range []struct {
		name       string
		parent     int
		start, end int
		status     codes.Code
	}{{"part", 1, 2, 3, codes.Unset}, {"inner", 2, 1, 4, codes.Error}, {"outer", -1, 0, 5, codes.Unset}} {
		s := spans[i]
		above := "00f067aa0ba902b7"
		if want.parent >= 0 {
			above = spans[want.parent].SpanContext.SpanID().String()
		}
		if s.Name != want.name || s.Parent.SpanID().String() != above || s.Status.Code != want.status ||
			!s.StartTime.Equal(begin.Add(time.Duration(want.start))) ||
			!s.EndTime.Equal(begin.Add(time.Duration(want.end))) ||
			s.SpanContext.TraceID().String() != caller[3:35] {
			t.Errorf("span %d: %+v", i, s)
		}
	}
	if len(spans[2].Attributes) != 1 || len(spans[1].Attributes) != 1 {
		t.Errorf("attributes %v, %v", spans[1].Attributes, spans[2].Attributes)
	}
}

// Work without a tracer or a parent is not traced, and what it came with is handed on.
func TestNoSpan(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(memory)).Tracer("t")
	for _, s := range []*Span{
		BeginSpan(nil, caller, "", "x", time.Now()), BeginSpan(tracer, "", "", "x", time.Now()),
		BeginSpan(tracer, "nonsense", "", "x", time.Now()),
	} {
		s.Child("y", time.Now(), time.Now())
		s.End(time.Now(), "CODE")
		if parent, state := s.Carry(caller, "z"); s != nil || parent != caller || state != "z" {
			t.Errorf("%v, %q, %q", s, parent, state)
		}
	}
	if n := len(memory.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}
