package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	hosting "github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// model is the tiny model of the tests: 32 wide, 40 tokens, from testdata/golden.
const model = "test/mean"

// rig is a server on a loopback port.
type rig struct {
	*Server
	t    *testing.T
	addr string
	log  *testrig.Log
	http *http.Client
}

// start serves model until the test ends, and fails the test if goroutines are left over. tune may
// change the server before it serves.
func start(t *testing.T, change func(*Options, *service.Options), tune ...func(*Server)) *rig {
	t.Helper()
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, a goroutine that stays
	leftOver := testrig.Goroutines(t)
	m, err := catalog.AdHoc(model, catalog.AdHocInfo{WeightsPath: filepath.Join(golden.Root(t), "st-mean")})
	if err != nil {
		t.Fatal(err)
	}
	scored, _, err := catalog.ParseModel("scored.yaml", []byte(`sie_id: acme/reranker
hf_id: acme/reranker
tasks: {score: {}}
max_sequence_length: 40
profiles: {default: {adapter_path: "sie_server.adapters.cross_encoder:X", max_batch_tokens: 4096}}
`))
	if err != nil {
		t.Fatal(err)
	}
	judge, _, err := catalog.ParseModel("judge.yaml", []byte(`sie_id: acme/judge
hf_id: acme/judge
tasks: {score: {}}
profiles: {default: {adapter_path: "sie_server.adapters.stablebridge_pruner:X", max_batch_tokens: 4096}}
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := new(catalog.Catalog).With(m, scored, judge)
	if err != nil {
		t.Fatal(err)
	}
	log := &testrig.Log{}
	logger := newDebugLog(log)
	wo := service.Options{Options: hosting.Options{
		Catalog:   c,
		Hub:       testmodels.Hub(t),
		Devices:   []engine.Options{{Threads: 2}},
		Precision: "fp32",
		LoadWait:  time.Minute,
		Metrics:   metrics.New(),
		Log:       logger,
	}}
	so := Options{
		Options: httpd.Options{Log: logger, WorkerIdle: 100 * time.Millisecond}, Name: "w1",
		Bundle: "default",
	}
	if change != nil {
		change(&so, &wo)
	}
	w, err := service.New(wo)
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine: run `make test-go`")
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(w, so)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tune {
		f(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	r := &rig{
		Server: s, t: t, addr: l.Addr().String(), log: log, http: &http.Client{Transport: &http.Transport{}},
	}
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		w.Close()
		leftOver()
	})
	if err := w.Preload(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	s.Ready()
	return r
}

// load returns what the server holds.
func (r *rig) load() httpd.Load { return r.Server.http.Load() }

// newDebugLog returns a logger that writes every level to w.
func newDebugLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// held keeps texts in the worker's queue: no batch leaves before n texts wait.
func held(n int) func(*Options, *service.Options) {
	return func(_ *Options, o *service.Options) { testmodels.Held(&o.Batch, n) }
}

// answer is a complete response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errorBody is the error envelope of native routes.
type errorBody struct {
	Code   string
	Detail struct{ Code, Message string }
	Error  struct{ Code, Message, Type, Param string }
}

func (a answer) failure(t *testing.T) errorBody {
	t.Helper()
	var e errorBody
	if err := json.Unmarshal(a.body, &e); err != nil {
		t.Fatalf("status %d with a body that is no error envelope: %q: %v", a.status, a.body, err)
	}
	return e
}

// do sends a request; headers come in pairs.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	a, err := r.try(r.t.Context(), method, path, body, headers...)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) try(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

const (
	encodePath = "/v1/encode/" + model
	oneText    = `{"items":[{"text":"the cat"}]}`
)

// encode posts an encode request in JSON.
func (r *rig) encode(body string, headers ...string) answer {
	r.t.Helper()
	return r.do("POST", encodePath, body,
		append([]string{"Content-Type", "application/json", "Accept", "application/json"}, headers...)...)
}

// dial opens a plain connection.
func (r *rig) dial() *wire {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &wire{Conn: c, t: r.t, br: bufio.NewReader(c)}
}

// wire is a connection on which tests write bytes.
type wire struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (w *wire) send(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w.Conn, s); err != nil {
		w.t.Fatal(err)
	}
}

// receive reads one response to a request with this method.
func (w *wire) receive(method string) answer {
	w.t.Helper()
	resp, err := http.ReadResponse(w.br, &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// ended fails the test unless the server has closed the connection and sent nothing more.
func (w *wire) ended() {
	w.t.Helper()
	if b, err := w.br.ReadByte(); !errors.Is(err, io.EOF) {
		w.t.Errorf("the connection goes on with %q, %v", b, err)
	}
}

// post returns an encode request that declares a body of this length.
func post(length int, extra ...string) string {
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n%s\r\n",
		encodePath, length, strings.Join(extra, ""))
}

const getHealth = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

// queued waits until n texts wait in the worker's queue.
func (r *rig) queued(n int) {
	r.t.Helper()
	testrig.Until(r.t, fmt.Sprintf("%d texts are queued", n), func() bool { return r.depth() == n })
}

func (r *rig) depth() int {
	depth := 0
	for _, m := range r.service.Status().Models {
		depth += m.QueueDepth
	}
	return depth
}

// metric returns the value of a line of /metrics, or "" if there is none.
func (r *rig) metric(line string) string {
	r.t.Helper()
	for l := range strings.Lines(string(r.do("GET", "/metrics", "").body)) {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
