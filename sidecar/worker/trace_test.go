package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
)

// A slice's spans are below its gateway's, the server gets a parent below them, and a slice that
// nobody traces has none.
func TestSpansOfASlice(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(memory))
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	var lines bytes.Buffer // written by the goroutine of Run, which ends before it is read
	sc := startSidecar(t, s, f, "w1", func(c *Config) {
		c.Tracer, c.AccessLog, c.Log = p.Tracer("t"), true, slog.New(slog.NewTextHandler(&lines, nil))
	})
	g.prepare("org/m")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	g.publish("org/m", "r1", func(it *work.Item, _ *nats.Msg) {
		it.TraceParent, it.CallerID = parent, "caller-7"
	}, "secret")
	g.publish("org/m", "r2", nil, "secret")
	g.result("r1")
	g.result("r2")
	g.settled(empty0)
	spans := memory.GetSpans()
	if len(spans) != 2 || spans[0].Name != "ipc" || spans[1].Name != "slice" {
		t.Fatalf("%+v", spans)
	}
	call, slice := spans[0], spans[1]
	if slice.Parent.SpanID().String() != parent[36:52] || call.Parent.SpanID() != slice.SpanContext.SpanID() {
		t.Errorf("parents %s, %s", slice.Parent.SpanID(), call.Parent.SpanID())
	}
	sc.stop()
	if err := <-sc.ended; err != nil {
		t.Error(err)
	}
	sc.ended <- nil // for the clean-up
	if text := lines.String(); !strings.Contains(text, "request_id=caller-7") ||
		strings.Contains(text, "secret") {
		t.Errorf("the log: %s", text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := "00-" + parent[3:36] + call.SpanContext.SpanID().String() + "-01"; f.parents["r1.0"] != want ||
		f.parents["r2.0"] != "" {
		t.Errorf("the server got %q, want %s", f.parents, want)
	}
	for _, x := range spans {
		for _, kv := range x.Attributes {
			if kv.Value.AsString() == "secret" {
				t.Errorf("a text is in %s", kv.Key)
			}
		}
	}
}
