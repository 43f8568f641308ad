package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

const oneText = `{"items":[{"text":"a"},{"text":"b","id":"x"}]}`

// An answer has the headers of sie-server and those of the queue; what the queue may use of a
// request reaches it.
func TestAnswersOfTheQueue(t *testing.T) {
	r := start(t, nil)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := r.do("POST", "/v1/encode/org/a", oneText, "Content-Type", "application/json", "Accept",
		"application/json", "X-Request-ID", "req-7", "traceparent", parent, "tracestate", "k=v",
		"X-SIE-MACHINE-PROFILE", "l4", "X-SIE-Pool", "default", "X-SIE-SDK-Version", "0.10.1")
	if a.status != 200 || strings.Count(a.body, `"dense"`) != 2 || !strings.Contains(a.body, `"id":"x"`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for name, want := range map[string]string{
		"X-SIE-Worker": "w-1", "X-SIE-Bundle-Config-Hash": "abc", "X-Queue-Publish-Time": "1.50",
		"X-Queue-Wait-Time": "2.00", "X-Payload-Fetch-Time": "1.00", "X-SIE-Request-Id": "req-7",
		"X-SIE-Server-Version": "0.10", "X-SIE-Units-Input-Tokens": "3", "X-SIE-Served-By": "local",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := a.header.Get("X-SIE-Model"); got != "" {
		t.Errorf("an answer to a model's own name has X-SIE-Model %q", got)
	}
	h := r.backend.heads[0]
	if h.Endpoint != "encode" || h.RequestID != "req-7" || h.MachineProfile != "l4" || h.Pool != "default" ||
		h.Caller.Minor != 10 || h.TraceParent != parent || h.TraceState != "k=v" {
		t.Errorf("%+v", h)
	}
	if ends := r.backend.ends; len(ends) != 1 || ends[0] != "org/a ok" {
		t.Errorf("counted %q", ends)
	}
	a = r.do("POST", "/v1/embeddings", `{"model":"org__a","input":"a"}`)
	if a.header.Get("X-SIE-Worker") != "" && a.status == 200 {
		t.Errorf("embeddings of a fake without OpenAI ids: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/v1/embeddings", `{"model":"org/a","input":"a"}`); a.status != 200 {
		t.Errorf("embeddings: %d %s", a.status, a.body)
	}
	r.backend.alias = true
	if a := r.do("POST", "/v1/embeddings", `{"model":"org/a","input":"a"}`); a.header.Get(
		"X-SIE-Model") != "org/a" {
		t.Errorf("the model of an alias is not named: %d %v", a.status, a.header)
	}
	if r.backend.heads[0].TraceParent == "" || r.backend.heads[len(r.backend.heads)-1].TraceParent != "" {
		t.Error("a request without a trace has one")
	}
}

// With a tracer, the work of a request belongs to the request's own span, in the caller's trace.
func TestTheSpanOfARequestReachesTheQueue(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(spans))
	r := start(t, func(o *Options) { o.Tracer = p.Tracer("t") })
	const id = "0af7651916cd43dd8448eb211c80319c"
	for _, parent := range []string{"00-" + id + "-b7ad6b7169203331-01", "garbage"} {
		spans.Reset()
		r.do("POST", "/v1/encode/org/a", oneText, "traceparent", parent, "tracestate", "k=v")
		h, own := r.backend.heads[len(r.backend.heads)-1], spans.GetSpans()[0].SpanContext
		want := "00-" + own.TraceID().String() + "-" + own.SpanID().String() + "-01"
		state := ""
		if parent != "garbage" {
			want, state = "00-"+id+"-"+own.SpanID().String()+"-01", "k=v"
		}
		if h.TraceParent != want || h.TraceState != state {
			t.Errorf("%s: %q %q, want %s %q", parent, h.TraceParent, h.TraceState, want, state)
		}
	}
	plain := start(t, nil)
	plain.do("POST", "/v1/encode/org/a", oneText, "traceparent", "garbage", "tracestate", "k=v")
	if h := plain.backend.heads[0]; h.TraceParent != "" || h.TraceState != "" {
		t.Errorf("an invalid trace goes on: %+v", h)
	}
}

// The answers of text-embeddings-inference say whether there is a GPU in the cluster.
func TestComputeType(t *testing.T) {
	r := start(t, func(o *Options) { o.DefaultModels = []string{"org/a"} })
	kind := func() string {
		return r.do("POST", "/embed", `{"inputs":"a"}`).header.Get("X-Compute-Type")
	}
	if got := kind(); got != "cpu+optimized" {
		t.Errorf("without workers: %s", got)
	}
	r.worker("w-1", testLanes[0], func(h *bus.WorkerHeartbeat) { h.GPUCount = 0 })
	if got := kind(); got != "cpu+optimized" {
		t.Errorf("without GPUs: %s", got)
	}
	r.worker("w-2", testLanes[0], nil)
	if got := kind(); got != "gpu+optimized" {
		t.Errorf("with a GPU: %s", got)
	}
}

// A result that is missing is an error, never a 200 with fewer items (weak points 1 and 2).
func TestNoPartialAnswer(t *testing.T) {
	r := start(t, nil)
	r.backend.short = 1
	for path, body := range map[string]string{
		"/v1/encode/org/a": oneText, "/v1/embeddings": `{"model":"org/a","input":["a","b"]}`,
	} {
		if a := r.do("POST", path, body); a.status != 500 || strings.Contains(a.body, "dense") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// Readiness waits for the broker and the catalog. Once there, only a drain ends it: a broker that
// is away takes no gateway out of service (weak points 26 and 29).
func TestReadiness(t *testing.T) {
	r := start(t, nil)
	probe := func(path string, status int, text string) {
		t.Helper()
		if a := r.do("GET", path, ""); a.status != status || a.body != text {
			t.Errorf("%s: %d %q, want %d %q", path, a.status, a.body, status, text)
		}
	}
	r.wait("the broker")
	r.Look()
	probe("/readyz", 503, "not ready: the broker")
	probe("/healthz", 200, "ok")
	r.wait("")
	r.Look() // without a probe
	r.wait("the broker")
	probe("/readyz", 200, "ok")
	probe("/livez", 200, "ok")
	r.Retire()
	probe("/readyz", 503, "draining")
	probe("/healthz", 200, "ok")
	a := r.do("POST", "/v1/encode/org/a", oneText)
	if a.status != 200 {
		t.Errorf("a request while retired: %d %s", a.status, a.body)
	}
}

// While a gateway retires, requests are answered and every answer ends its connection. While it
// drains, running requests finish and others are refused with a 503 that says when to retry.
func TestRetireThenDrain(t *testing.T) {
	r := start(t, nil)
	conns := func() int { return r.Load().Conns }
	r.do("GET", "/healthz", "")
	if conns() != 1 {
		t.Fatalf("%d connections", conns())
	}
	r.Retire()
	if a := r.do("POST", "/v1/encode/org/a", oneText); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	testrig.Until(t, "the connection is closed", func() bool { return conns() == 0 })

	r.backend.hold, r.backend.held = make(chan struct{}), make(chan struct{}, 1)
	running := make(chan reply, 1)
	go func() { running <- r.do("POST", "/v1/encode/org/a", oneText) }()
	<-r.backend.held
	down := make(chan error, 1)
	go func() { down <- r.Shutdown(context.Background()) }()
	testrig.Until(t, "the gate is shut", func() bool { return r.opt.Gate.Draining() })
	if a := r.do("POST", "/v1/encode/org/a", oneText); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("while draining: %d %v", a.status, a.header)
	}
	close(r.backend.hold)
	if a := <-running; a.status != 200 {
		t.Errorf("the running request: %d %s", a.status, a.body)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// A client that follows /readyz sees nothing but 200 while a gateway is told to stop: it sends
// while the gateway is ready, goes on for as long as its answers leave the connection open, and
// stops when a probe says no (weak point 29).
func TestClientsThatFollowReadiness(t *testing.T) {
	r := start(t, nil)
	ready := func() bool { return r.do("GET", "/readyz", "").status == 200 }
	began, stopped := make(chan struct{}, 8), make(chan int, 8)
	for range 8 {
		go func() {
			n := 0
			for ; ready(); n++ {
				if a := r.do("POST", "/v1/encode/org/a", oneText); a.status != 200 {
					t.Errorf("request %d: %d %s", n, a.status, a.body)
				}
				if n == 3 {
					began <- struct{}{}
				}
			}
			stopped <- n
		}()
	}
	for range 8 {
		<-began
	}
	r.Retire()
	for range 8 {
		<-stopped
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client that leaves ends the work of its request.
func TestAClientThatLeavesCancels(t *testing.T) {
	r := start(t, nil)
	r.backend.hold, r.backend.held = make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, _ := httpRequest(ctx, r.url+"/v1/encode/org/a", oneText)
		if resp, err := r.http.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-r.backend.held
	cancel()
	<-done
	testrig.Until(t, "the request has ended", func() bool {
		r.backend.mu.Lock()
		defer r.backend.mu.Unlock()
		return len(r.backend.ends) == 1
	})
	if ends := r.backend.ends; len(ends) != 1 || r.activity.now().Answered != 0 {
		t.Errorf("%v, and %d answers", ends, r.activity.now().Answered)
	}
}

// Each generation of SDKs gets the answer that it waits on (DESIGN 6; clients-0.10 0 and 1.7).
func TestRefusalsByGeneration(t *testing.T) {
	r := start(t, nil)
	capacity, full := errs.Capacity("l4", 120*time.Second), errs.FullQueue(1, 1, 1)
	for _, c := range []struct {
		err      *errs.Error
		version  string
		path     string
		status   int
		code     string
		retry    string
		contains string
	}{
		{capacity, "", "encode", 202, "", "120", `"status":"provisioning"`},
		{capacity, "0.3.4", "encode", 202, "", "120", `"status":"provisioning"`},
		{capacity, "0.6.0", "encode", 202, "", "120", `"status":"provisioning"`},
		{capacity, "0.6.30", "encode", 503, "PROVISIONING", "120", `"detail"`},
		{capacity, "0.10.1", "encode", 503, "PROVISIONING", "120", `"detail"`},
		{capacity, "", "embeddings", 503, "PROVISIONING", "120", `"type":"server_error"`},
		{capacity, "0.3.4", "embeddings", 503, "PROVISIONING", "120", `"type":"server_error"`},
		{full, "", "encode", 503, "QUEUE_FULL", "1", "Queue full"},
		{full, "0.3.4", "encode", 503, "QUEUE_FULL", "1", "Queue full"},
		{full, "0.6.30", "encode", 503, "PROVISIONING", "1", "Queue full"},
		{full, "0.7.2", "encode", 503, "PROVISIONING", "1", "Queue full"},
		{full, "0.7.3", "encode", 503, "QUEUE_FULL", "1", "Queue full"},
		{full, "0.10.1", "encode", 503, "QUEUE_FULL", "1", "Queue full"},
		{full, "unknown", "encode", 503, "PROVISIONING", "1", "Queue full"},
	} {
		for _, early := range []bool{true, false} { // before the body is read, and after
			r.backend.refusal, r.backend.err = nil, c.err
			if early {
				r.backend.refusal = inference.Refuse(c.err)
			}
			path, body := "/v1/encode/org/a", oneText
			if c.path == "embeddings" {
				path, body = "/v1/embeddings", `{"model":"org/a","input":"a"}`
			}
			var headers []string
			if c.version != "" {
				headers = []string{"X-SIE-SDK-Version", c.version}
			}
			a := r.do("POST", path, body, headers...)
			if a.status != c.status || a.header.Get("X-SIE-Error-Code") != c.code ||
				a.header.Get("Retry-After") != c.retry || !strings.Contains(a.body, c.contains) {
				t.Errorf("%s for %q on %s: %d %v %s", c.err.Code, c.version, c.path, a.status, a.header,
					a.body)
			}
		}
	}
}

// A head that the queue refuses costs no body.
func TestARefusedHead(t *testing.T) {
	r := start(t, nil)
	r.backend.check = errs.UnknownPool("a.>", []string{"default"})
	for range 3 {
		a := r.do("POST", "/v1/encode/org/a", "{", "X-SIE-Pool", "a.>", "X-SIE-MACHINE-PROFILE", "made-up")
		if a.status != 404 || !strings.Contains(a.body, "X-SIE-Pool") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// Keys guard everything that names workers or models; probes need none.
func TestKeys(t *testing.T) {
	keys, err := tenant.Open(tenant.Options{Keys: []string{"secret"}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.Keys = keys })
	for _, route := range r.routes(inference.New(inference.Options{})) {
		path := route.Path
		if strings.HasSuffix(path, "/") && path != "/" {
			path += "x"
		}
		a := r.do(route.Method, path, "")
		if route.Open != (a.status != 401) {
			t.Errorf("%s %s without a key: %d", route.Method, path, a.status)
		}
		page := slices.Contains([]string{"/", "/docs", "/openapi.json", "/static/x"}, path)
		if open := strings.HasSuffix(path, "z") || page && route.Method == "GET"; open != route.Open {
			t.Errorf("%s: open %v", path, route.Open)
		}
	}
	if a := r.do("GET", "/health", "", "Authorization", "Bearer secret"); a.status != 200 {
		t.Errorf("with the key: %d", a.status)
	}
	open := start(t, func(o *Options) { o.Keys, o.OpenStatus = keys, true })
	for path, want := range map[string]int{"/health": 200, "/ws/cluster-status": 426, "/ws/status": 426,
		"/v1/models": 401, "/v1/pools": 401} {
		if a := open.do("GET", path, ""); a.status != want {
			t.Errorf("%s with an open status: %d, want %d", path, a.status, want)
		}
	}
}

func TestPathsThatAreNotServed(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/v1/configs/models", 405}, {"PUT", "/v1/configs/models/org/a", 405},
		{"POST", "/v1/chat/completions", 501}, {"POST", "/v1/generate/x", 501}, {"GET", "/nope", 404},
		{"POST", "/v1/pools/p/x", 404},
		{"GET", "/v1/models", 200}, {"GET", "/", 200}, {"PUT", "/", 405}, {"GET", "/ws/status", 426},
	} {
		a := r.do(c.method, c.path, "{}")
		if a.status != c.status || a.status == 501 && !strings.Contains(a.body, `"error":{`) {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, a.status, a.body, c.status)
		}
		if strings.HasPrefix(c.path, "/v1/pools") && !strings.Contains(a.body, `"detail":{"code"`) {
			t.Errorf("%s: SDKs read detail.message: %s", c.path, a.body)
		}
	}
}

// A broken Options is refused with all that is wrong.
func TestOptions(t *testing.T) {
	_, err := New(Options{MaxWatchers: -1, StatusInterval: -1})
	for _, part := range []string{"MaxWatchers", "StatusInterval", "Backend, Gate"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %s", err, part)
		}
	}
}

// The status sockets send frames, and a last one when the gateway shuts down.
func TestStatusSockets(t *testing.T) {
	r := start(t, nil)
	r.worker("w-1", testLanes[0], func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"org/a"} })
	for _, path := range []string{"/ws/cluster-status", "/ws/status"} {
		c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(r.url, "http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			kind, b, err := c.ReadMessage()
			if err != nil || kind != websocket.TextMessage ||
				!strings.Contains(string(b), `"cluster":{"worker_count":1`) ||
				!strings.Contains(string(b), `"name":"w-1"`) {
				t.Errorf("%s: %v %s", path, err, b)
			}
		}
		c.Close()
	}
	testrig.Until(t, "no watcher is left", func() bool { return r.watch.Watchers() == 0 })
}

// A frame stays below what the SDK's library takes, however many workers there are.
func TestFramesAreBounded(t *testing.T) {
	r := start(t, nil)
	for i := range 3000 {
		r.worker(fmt.Sprintf("w-%d", i), testLanes[i%2], func(h *bus.WorkerHeartbeat) {
			h.LoadedModels = []string{fmt.Sprintf("org/%d-%s", i, strings.Repeat("x", 200))}
		})
	}
	b, err := r.frame()
	if err != nil || len(b) > maxFrame || len(b) < maxFrame/8 || !strings.Contains(string(b),
		`"truncated":true`) ||
		!strings.Contains(string(b), `"worker_count":3000`) {
		t.Errorf("%v, %d bytes: %.300s", err, len(b), b)
	}
}

// A frame is made even where the names of the workers' profiles alone are more than it may hold.
func TestFramesOfManyProfilesAreBounded(t *testing.T) {
	many := &fleet.Snapshot{}
	for i := range 8500 {
		l := bus.Lane{Pool: "p", Profile: fmt.Sprintf("%0125d", i), Bundle: "b"}
		many.Workers = append(many.Workers, &fleet.Worker{ID: fmt.Sprint("w-", i), Lane: l, Live: true})
	}
	r := start(t, func(o *Options) { o.Fleet = func() *fleet.Snapshot { return many } })
	b, err := r.frame()
	if err != nil || len(b) > maxFrame || len(b) < maxFrame/8 || !strings.Contains(string(b),
		`"truncated":true`) || !strings.Contains(string(b), `"worker_count":8500`) {
		t.Errorf("%v, %d bytes: %.300s", err, len(b), b)
	}
}
