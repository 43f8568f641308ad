package obs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	promexport "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/prometheus/client_golang/prometheus"
)

// Telemetry sends traces and metrics to an OTLP collector. The metrics are those of /metrics. The
// OTEL_ environment variables set the endpoint, the sampling and the interval. An endpoint that
// cannot be reached only causes log lines: the number of waiting spans is bounded.
//
// It runs the goroutines of the OpenTelemetry SDK until Close.
type Telemetry struct {
	Tracer api.Tracer
	close  []func(context.Context) error
}

// StartTelemetry starts sending traces, and the metrics in registry, for service. OTEL_SERVICE_NAME
// overrides the name.
//
// This package reads the variables OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER and
// OTEL_METRICS_EXPORTER (otlp or none), and OTEL_EXPORTER_OTLP_PROTOCOL with its per-signal forms
// (grpc, the default as in the reference, or http/protobuf). The SDK reads the others. Errors name
// the variable.
func StartTelemetry(
	ctx context.Context, service, version string, registry prometheus.Gatherer, log *slog.Logger,
) (*Telemetry, error) {
	t := &Telemetry{}
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return t, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry", "error", err) }))
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version)), resource.WithHost(), resource.WithProcessPID(),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("telemetry: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if err := t.startTraces(ctx, about); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	if err := t.startMetrics(ctx, about, registry); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}

// wanted reports whether to send a signal, and whether over http/protobuf.
func wanted(signal string) (send, http bool, err error) {
	name := "OTEL_" + signal + "_EXPORTER"
	switch v := os.Getenv(name); v {
	case "none":
		return false, false, nil
	case "", "otlp":
	default:
		return false, false, fmt.Errorf("%s is %q; otlp and none are known", name, v)
	}
	name = "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL"
	switch v := cmp.Or(os.Getenv(name), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); v {
	case "", "grpc":
		return true, false, nil
	case "http/protobuf":
		return true, true, nil
	default:
		return false, false, fmt.Errorf(
			"%s or OTEL_EXPORTER_OTLP_PROTOCOL is %q; grpc and http/protobuf are known", name, v)
	}
}

func (t *Telemetry) startTraces(ctx context.Context, about *resource.Resource) error {
	send, http, err := wanted("TRACES")
	if !send {
		return err
	}
	var exporter trace.SpanExporter
	if http {
		exporter, err = otlptracehttp.New(ctx)
	} else {
		exporter, err = otlptracegrpc.New(ctx)
	}
	if err != nil {
		return fmt.Errorf("telemetry: traces: %w", err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	t.Tracer, t.close = p.Tracer("github.com/sie-engine/sie"), append(t.close, p.Shutdown)
	return nil
}

func (t *Telemetry) startMetrics(
	ctx context.Context, about *resource.Resource, registry prometheus.Gatherer,
) error {
	send, http, err := wanted("METRICS")
	if !send {
		return err
	}
	var exporter metric.Exporter
	if http {
		exporter, err = otlpmetrichttp.New(ctx)
	} else {
		exporter, err = otlpmetricgrpc.New(ctx)
	}
	if err != nil {
		return fmt.Errorf("telemetry: metrics: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter,
		metric.WithProducer(promexport.NewMetricProducer(promexport.WithGatherer(registry))))
	p := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	t.close = append(t.close, p.Shutdown)
	return nil
}

// Close sends the waiting data, as far as ctx allows, and ends the goroutines.
func (t *Telemetry) Close(ctx context.Context) error {
	var all error
	for _, f := range t.close {
		all = errors.Join(all, f(ctx))
	}
	t.close = nil
	return all
}
