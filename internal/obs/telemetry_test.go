package obs

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP collector that keeps the data it gets.
type receiver struct {
	mu      sync.Mutex
	spans   []*tracepb.ResourceSpans
	metrics []*metricspb.ResourceMetrics
}

type traceService struct {
	collecttraces.UnimplementedTraceServiceServer
	*receiver
}

type metricService struct {
	collectmetrics.UnimplementedMetricsServiceServer
	*receiver
}

func (s traceService) Export(
	_ context.Context, r *collecttraces.ExportTraceServiceRequest,
) (*collecttraces.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans = append(s.spans, r.ResourceSpans...)
	return &collecttraces.ExportTraceServiceResponse{}, nil
}

func (s metricService) Export(
	_ context.Context, r *collectmetrics.ExportMetricsServiceRequest,
) (*collectmetrics.ExportMetricsServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics = append(s.metrics, r.ResourceMetrics...)
	return &collectmetrics.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP serves the collector's http/protobuf protocol.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	b, _ := io.ReadAll(q.Body)
	var in, out proto.Message
	switch q.URL.Path {
	case "/v1/traces":
		m := &collecttraces.ExportTraceServiceRequest{}
		if proto.Unmarshal(b, m) == nil {
			out, _ = traceService{receiver: r}.Export(q.Context(), m)
		}
		in = m
	case "/v1/metrics":
		m := &collectmetrics.ExportMetricsServiceRequest{}
		if proto.Unmarshal(b, m) == nil {
			out, _ = metricService{receiver: r}.Export(q.Context(), m)
		}
		in = m
	}
	if in == nil || out == nil || q.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	b, _ = proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b)
}

// start serves the collector in a protocol and returns its address.
func (r *receiver) start(t *testing.T, protocol string) string {
	if protocol == "http/protobuf" {
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		return s.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collecttraces.RegisterTraceServiceServer(s, traceService{receiver: r})
	collectmetrics.RegisterMetricsServiceServer(s, metricService{receiver: r})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String()
}

func TestTelemetry(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(strings.ReplaceAll(protocol, "/", " "), func(t *testing.T) {
			r := &receiver{}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.start(t, protocol))
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
			registry := NewRegistry()
			requests := prometheus.NewCounterVec(
				prometheus.CounterOpts{Name: "sie_requests_total", Help: "Requests."}, []string{"model"})
			registry.MustRegister(requests)
			requests.WithLabelValues("org/model").Inc()
			tel, err := StartTelemetry(t.Context(), "sie-server", "1.2.3", registry,
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			_, span := tel.Tracer.Start(t.Context(), "encode")
			span.SetAttributes(attribute.String("model", "org/model"))
			span.End()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := tel.Close(ctx); err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.spans) != 1 || r.spans[0].ScopeSpans[0].Spans[0].Name != "encode" {
				t.Fatalf("spans %v", r.spans)
			}
			about := r.spans[0].Resource.String()
			for _, want := range []string{"sie-server", "1.2.3", "deployment.environment"} {
				if !strings.Contains(about, want) {
					t.Errorf("the resource lacks %s: %s", want, about)
				}
			}
			found := false
			for _, rm := range r.metrics {
				for _, sm := range rm.ScopeMetrics {
					for _, one := range sm.Metrics {
						found = found || strings.HasPrefix(one.Name, "sie_requests") &&
							strings.Contains(one.String(), "org/model")
					}
				}
			}
			if !found {
				t.Errorf("sie_requests_total was not sent: %v", r.metrics)
			}
		})
	}
}

func TestTelemetryEnvironment(t *testing.T) {
	for _, c := range []struct{ name, value, err string }{
		{"OTEL_TRACES_EXPORTER", "jaeger", "OTEL_TRACES_EXPORTER"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "x", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			if _, err := StartTelemetry(t.Context(), "s", "v", NewRegistry(), slog.Default()); err == nil ||
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	tel, err := StartTelemetry(t.Context(), "s", "v", NewRegistry(), slog.Default())
	if err != nil || tel.Tracer != nil || tel.Close(t.Context()) != nil {
		t.Errorf("nothing to send: %+v, %v", tel, err)
	}
}
