package queue

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/work"
)

// The caller's trace goes on through the queue: its span has the publish and the wait below it, and
// the worker's spans come below it.
func TestTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	g := newRig(t, func(o *Options) { o.Tracer = provider.Tracer("test") })
	got := make(chan string, 1)
	g.sidecar("w1", func(_ *sidecar, _ jetstream.Msg, item *work.Item, _ []string) bool {
		got <- item.TraceParent + " " + item.TraceState + " " + item.CallerID
		return false
	})
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	head := inference.Head{
		TraceParent: "00-" + trace + "-" + parent + "-01", TraceState: "a=b", RequestID: "req",
	}
	res, err := g.encodeAs(t.Context(), head, "secret text")
	check(t, res, err, "secret text")
	ended := map[string]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		ended[s.Name()] = s
		if s.SpanContext().TraceID().String() != trace {
			t.Errorf("span %s is of another trace", s.Name())
		}
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.Emit(), "secret") {
				t.Errorf("%s has a text", a.Key)
			}
		}
	}
	queue, publish, wait := ended["queue"], ended["queue publish"], ended["queue wait"]
	if queue == nil || publish == nil || wait == nil {
		t.Fatalf("spans: %v", ended)
	}
	if queue.Parent().SpanID().String() != parent ||
		publish.Parent().SpanID() != queue.SpanContext().SpanID() ||
		wait.Parent().SpanID() != queue.SpanContext().SpanID() || wait.EndTime().Before(wait.StartTime()) {
		t.Errorf("%v\n%v\n%v", queue, publish, wait)
	}
	want := "00-" + trace + "-" + queue.SpanContext().SpanID().String() + "-01 a=b req"
	if item := <-got; item != want {
		t.Errorf("the work has %q, want %q", item, want)
	}
}

// A gateway that traces nothing hands the caller's trace on as it is.
func TestTraceWithoutATracer(t *testing.T) {
	g := newRig(t, nil)
	got := make(chan string, 1)
	g.sidecar("w1", func(_ *sidecar, _ jetstream.Msg, item *work.Item, _ []string) bool {
		got <- item.TraceParent + " " + item.TraceState
		return false
	})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	res, err := g.encodeAs(t.Context(), inference.Head{TraceParent: parent, TraceState: "a=b"}, "text")
	check(t, res, err, "text")
	if item := <-got; item != parent+" a=b" {
		t.Errorf("the work has %q", item)
	}
}

// series returns the sum of a family's samples whose labels contain all of some.
func series(t *testing.T, r *prometheus.Registry, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if matches(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func matches(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, asked := labels[l.GetName()]; asked && want == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// Requests are counted by what became of them; what waits is shown while it waits.
func TestSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := newRig(t, func(o *Options) { o.Metrics = registry })
	p := g.start(t.Context(), texts("text", 40)...)
	g.waits(stored, 2)
	model := map[string]string{"model": modelID, "pool": "default"}
	for name, want := range map[string]float64{
		"sie_gateway_queue_untaken_items": 40, "sie_gateway_queue_unanswered_items": 40,
	} {
		if got := series(t, registry, name, model); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	inLane := map[string]string{"pool": "default", "machine_profile": "cpu", "bundle": "default"}
	if got := series(t, registry, "sie_gateway_lane_queued_tokens", inLane); got < 40 || got > 40*20 {
		t.Errorf("40 short texts are %v tokens", got)
	}
	g.sidecar("w1", nil)
	p.answered(t)
	for _, e := range []struct {
		err  error
		name string
	}{{nil, "encode"}, {admit.ErrClientGone, "encode"}, {errs.SlowQueue(5, 5), "score"},
		{&errs.Error{Code: "MADE_UP_BY_A_WORKER", Status: 503}, "score"}} {
		s := g.backend.Begin(inference.Head{Endpoint: e.name}).(*session)
		s.lane = lane
		s.End(modelID, nil, e.err)
	}
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"sie_gateway_requests_total", map[string]string{"endpoint": "encode", "status": "200"}, 1},
		{"sie_gateway_requests_total", map[string]string{"status": "499", "machine_profile": "cpu"}, 1},
		{"sie_gateway_requests_total", map[string]string{"status": "503"}, 2},
		{"sie_gateway_request_latency_seconds", map[string]string{"endpoint": "encode"}, 1},
		{"sie_gateway_rejected_requests_total",
			map[string]string{"reason": "queue_full", "scaling_action": "scale_up", "bundle": "default"}, 1},
		{"sie_gateway_rejected_requests_total", map[string]string{"reason": "other"}, 1},
		{"sie_gateway_queue_items_published", map[string]string{"operation": "encode"}, 1},
		{"sie_gateway_queue_result_wait_seconds", map[string]string{"operation": "encode"}, 1},
		{"sie_gateway_queue_publish_seconds", map[string]string{"operation": "encode"}, 1},
		{"sie_gateway_nats_connected", nil, 1},
		{"sie_gateway_queue_pending_requests", nil, 0},
		{"sie_gateway_queue_untaken_items", model, 0}, {"sie_gateway_lane_queued_tokens", inLane, 0},
		{"sie_gateway_requests_total", map[string]string{"pool": "default", "bundle": "default",
			"status": "499"}, 1},
	} {
		if got := series(t, registry, c.name, c.labels); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
