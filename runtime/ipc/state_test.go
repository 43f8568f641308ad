package ipc

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/service"
)

// Asking for a model answers at once, begins its load, and the load outlives the caller.
func TestEnsureModelReady(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) {
		o.Null.LoadTime,
			o.MaxBatchTokens = time.Second, 1000
	})
	c := r.dial()
	ask := func(c *client, id string) (a wire.ReadyResponse) {
		if err := c.call(wire.MethodEnsureModelReady, &wire.ModelRequest{ModelID: id}, &a); err != nil {
			t.Error(err)
		}
		return a
	}
	first := r.dial()
	if a := ask(first, everything); a.State != wire.StateLoadingStarted || a.RetryAfterS <= 0 {
		t.Errorf("%+v", a)
	}
	first.close()
	if a := ask(c, everything); a.State != wire.StateLoadingInProgress {
		t.Errorf("%+v", a)
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil ||
		!slices.Contains(p.LoadingModels, everything) || len(p.LoadedModels) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	r.until("it is loaded", func() bool { return ask(c, everything).State == wire.StateReady })
	a := ask(c, everything)
	if a.BatchTokens != 1000 || a.Descriptor == nil || !a.Descriptor.SupportsRunBatch ||
		!slices.Contains(a.Descriptor.OutputTypes, "dense") || *a.Descriptor.MaxSeqLen <= 0 {
		t.Errorf("%+v", a)
	}
	a = ask(c, "none/such")
	if e, err := errs.FromMsgpack(a.Err); a.State != wire.StateFailed || err != nil ||
		e.Code != errs.ModelNotFound {
		t.Errorf("%+v, %v", a, err)
	}
}

// Ping tells who the server is, what it has, and signs of life.
func TestPing(t *testing.T) {
	ready := false
	r := start(t, func(_ *service.Options, o *Options) { o.Ready = func() bool { return ready } })
	c := r.dial()
	ping := func() (p wire.PingResponse) {
		if err := c.call(wire.MethodPing, &wire.PingRequest{TimestampMS: 12.5}, &p); err != nil {
			t.Error(err)
		}
		return p
	}
	if r.server.Beating() {
		t.Error("a heartbeat before any ping")
	}
	p := ping()
	if p.Ready || p.WorkerID != "worker-1" || p.Epoch == "" || p.PID == 0 || p.TimestampMS != 12.5 ||
		p.MemoryTotal <= 0 || p.BundleConfigHash != r.configs.Hash() || p.BundleConfigHash == "" {
		t.Errorf("%+v", p)
	}
	ready = true
	c.one(sliceOf("1", work.Encode, nil, "a"))
	if again := ping(); !again.Ready || again.Epoch != p.Epoch || again.FinishedBatch != 1 ||
		!slices.Contains(again.LoadedModels, everything) {
		t.Errorf("%+v", again)
	}
	if !r.server.Beating() {
		t.Error("no heartbeat after a ping")
	}
	if other := start(t, nil); other.server.epoch == r.server.epoch {
		t.Error("two servers have one epoch")
	}
}

// A heartbeat is fresh for ten seconds.
func TestHeartbeatsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		now := time.Now()
		s.beat.Store(&now)
		time.Sleep(FreshHeartbeat - 1)
		if !s.Beating() {
			t.Error("it is stale too early")
		}
		time.Sleep(1)
		if s.Beating() {
			t.Error("it is never stale")
		}
	})
}

// A heartbeat ages when the host's clock is set back: the seconds of the wall clock are above 30
// bits of nanoseconds in a Time, and the monotonic reading is beside them.
func TestHeartbeatsAgeWhenTheClockIsSetBack(t *testing.T) {
	at := time.Now().Add(-FreshHeartbeat)
	*(*uint64)(unsafe.Pointer(&at)) += 3600 << 30
	if time.Until(at.Round(0)) < 59*time.Minute || time.Until(at) > 0 {
		t.Fatalf("it came %v", at)
	}
	s := &Server{}
	s.beat.Store(&at)
	if s.Beating() {
		t.Error("it is fresh until the clock has caught up")
	}
}

// While a batch runs, its progress counts from the last batch that the device finished.
func TestProgress(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Batch.MaxRequests = 1 })
	c := r.dial()
	from := c.begin(wire.MethodRunBatch, &wire.RunBatchRequest{ModelID: everything, Items: []wire.RunItem{
		sliceOf("1", work.Encode, nil, "!sleep=1s"), sliceOf("2", work.Encode, nil, "a"),
	}}, nil)
	if _, err := c.await(from); err != nil {
		t.Fatal(err)
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil || len(p.Running) != 1 ||
		p.Running[0].Total != 2 || p.Running[0].Done != 1 || p.Running[0].ProgressMS < 0 ||
		p.FinishedBatch != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, last := r.service.FinishedBatches(); last == last.Round(0) {
		t.Errorf("%v says nothing when the host's clock is set", last)
	}
	if _, err := c.await(from); err != nil {
		t.Fatal(err)
	}
}

func TestPinsAndCapabilities(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	var pins wire.PinResponse
	for _, x := range []struct {
		ids  []string
		want int
	}{{[]string{everything, "none/such"}, 1}, {nil, 0}} {
		if err := c.call(wire.MethodSetPinnedModels, &wire.PinRequest{Models: x.ids}, &pins); err != nil ||
			!pins.Applied || pins.Count != x.want {
			t.Errorf("%v: %+v, %v", x.ids, pins, err)
		}
	}
	var a wire.CapabilitiesResponse
	if err := c.call(wire.MethodWorkerCapabilities, nil, &a); err != nil || a.HasGenerationModels ||
		!slices.Contains(a.SupportedModels, everything) || len(a.LoadedModels) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, m := range r.service.Catalog().List() {
		if slices.Contains(a.SupportedModels, m.ID) != (m.Usable() == nil) {
			t.Errorf("%s", m.ID)
		}
	}
}

// A slice's span belongs to its caller's trace, its log line has the caller's request id, and
// neither has a text.
func TestSpansAndLines(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(memory))
	r := start(t, func(_ *service.Options, o *Options) { o.Tracer, o.AccessLog = p.Tracer("t"), true })
	c := r.dial()
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	for i, text := range []string{"a secret text", "!oom secret"} {
		memory.Reset()
		it := sliceOf(string(rune('1'+i)), work.Encode, nil, text)
		it.TraceParent = "00-" + parent + "-00f067aa0ba902b7-01"
		c.one(it)
		spans := memory.GetSpans()
		whole := spans[len(spans)-1]
		if whole.SpanContext.TraceID().String() != parent || whole.Name != "ipc.encode" ||
			whole.Parent.SpanID().String() != "00f067aa0ba902b7" {
			t.Fatalf("%v", spans)
		}
		var names []string
		for _, part := range spans[:len(spans)-1] {
			names = append(names, part.Name)
			if part.Parent.SpanID() != whole.SpanContext.SpanID() {
				t.Errorf("%s is below %s", part.Name, part.Parent.SpanID())
			}
		}
		if want := []string{"tokenize", "batch wait", "batch"}; i == 0 && !slices.Equal(names, want) {
			t.Errorf("parts %q, want %q", names, want)
		}
		for _, kv := range whole.Attributes {
			if strings.Contains(kv.Value.String(), "secret") {
				t.Errorf("a text is in %s", kv.Key)
			}
		}
	}
	if s := r.log.String(); !strings.Contains(s, "id=caller-1 work_item=1") ||
		strings.Contains(s, "secret") ||
		!strings.Contains(s, "error=RESOURCE_EXHAUSTED") {
		t.Errorf("%s", s)
	}
}
