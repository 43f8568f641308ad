package server

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sie-engine/sie/runtime/service"
)

// Spans have the reference's names and attributes (server.md 1.14), belong to the caller's trace
// and hold no text.
func TestSpans(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(memory))
	r := start(t, func(o *Options, _ *service.Options) {
		o.Tracer, o.MachineProfile, o.DefaultModels = p.Tracer("t"), "l4", []string{model}
	}, with(&fakeTasks{}))
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct {
		path, body, span string
		batch            int64
		error            string
	}{
		{encodePath, `{"items":[{"text":"the cat"},{"text":"x"}],"params":{"output_types":["dense"]}}`,
			"encode", 2, ""},
		{encodePath, `{`, "encode", 0, "INVALID_INPUT"},
		{scorePath, `{"query":{"text":"q"},"items":[{"text":"the cat"}]}`, "score", 1, ""},
		{"/v1/extract/" + model, `{"items":[{"text":"the cat"}]}`, "extract", 0, "INVALID_INPUT"},
		{"/v1/embeddings", `{"model":"test/mean","input":["the cat","a","b"]}`, "openai_embeddings", 3, ""},
		{"/v1/rerank", `{"model":"acme/reranker","query":"q","documents":["the cat"]}`, "rerank", 1, ""},
		{"/embed", `{"inputs":"the cat"}`, "tei_embed", 1, ""},
	} {
		memory.Reset()
		a := r.do("POST", c.path, c.body, "traceparent", "00-"+parent+"-00f067aa0ba902b7-01")
		spans := memory.GetSpans()
		if len(spans) != 1 || spans[0].Name != c.span || spans[0].SpanContext.TraceID().String() != parent ||
			a.header.Get("X-Trace-ID") != parent {
			t.Fatalf("%s: %v, %v", c.path, spans, a.header)
		}
		got := map[string]any{}
		for _, kv := range spans[0].Attributes {
			got[string(kv.Key)] = kv.Value.AsInterface()
			if s := kv.Value.String(); s == "the cat" {
				t.Errorf("%s: a text is in %s", c.path, kv.Key)
			}
		}
		if got["batch_size"] != c.batch || got["machine_profile"] != "l4" ||
			(c.error != "" && got["error"] != c.error) || (c.error == "" && got["error"] != nil) {
			t.Errorf("%s: %v", c.path, got)
		}
		if total, _ := got["timing.total_ms"].(float64); (total > 0) != (c.error == "") {
			t.Errorf("%s: timing.total_ms %v", c.path, got["timing.total_ms"])
		}
	}
	memory.Reset()
	r.do("GET", "/healthz", "")
	if a := r.do("GET", "/v1/models", ""); a.header.Get("X-Trace-ID") != "" || len(memory.GetSpans()) != 0 {
		t.Error("listings have no spans")
	}
}
