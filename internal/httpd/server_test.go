package httpd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

// rig is a server of a few routes. POST /work/echo answers with its body, /work/wait waits until
// its context ends or release is closed, /work/keep keeps its body, and /work/BYTES holds and
// answers BYTES bytes.
type rig struct {
	*Server
	t       *testing.T
	addr    string
	log     *testrig.Log
	client  *http.Client
	working chan struct{}
	release chan struct{}
	ended   chan error // the cause that ended a wait
	kept    chan []byte
	served  int // listeners
	done    chan error
}

func start(t *testing.T, opt Options) *rig {
	t.Helper()
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, a goroutine that stays
	leftOver := testrig.Goroutines(t)
	r := &rig{
		t:       t,
		log:     &testrig.Log{},
		client:  &http.Client{Transport: &http.Transport{}},
		working: make(chan struct{}, 1),
		release: make(chan struct{}),
		ended:   make(chan error, 1),
		kept:    make(chan []byte, 1),
		done:    make(chan error, 4),
	}
	opt.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opt.WorkerIdle = 100 * time.Millisecond
	s, err := New(opt, []Route{
		{Method: "GET", Path: "/open", Open: true,
			Serve: func(r *Request, _ string) { r.Plain(200, "open") }},
		{Method: "GET", Path: "/", Serve: func(r *Request, _ string) { r.Plain(200, "root") }},
		{Method: "GET", Path: "/watched", Roles: tenant.Metrics,
			Serve: func(r *Request, _ string) { r.Plain(200, "seen") }},
		{Method: "GET", Path: "/both", Roles: tenant.Inference | tenant.Metrics,
			Serve: func(r *Request, _ string) { r.Plain(200, "seen") }},
		{Method: "GET", Path: "/item/", Serve: func(r *Request, rest string) { r.Plain(200, rest) }},
		{Method: "GET", Path: "/panic", Serve: func(*Request, string) { panic("boom") }},
		{Method: "POST", Path: "/panic",
			Serve: func(r *Request, _ string) { _ = r.Do("", func(*admit.Work, []byte) { panic("boom") }) }},
		{Method: "POST", Path: "/work/", Serve: r.work, Kind: dialect.RouteEncode, Span: "work"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	r.addr = r.listen(func(l net.Listener) net.Listener { return l })
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		for range r.served {
			if err := <-r.done; err != nil {
				t.Errorf("serve: %v", err)
			}
		}
		leftOver()
	})
	return r
}

// listen serves one more address.
func (r *rig) listen(wrap func(net.Listener) net.Listener) string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.served++
	go func() { r.done <- r.Serve(wrap(l)) }()
	return l.Addr().String()
}

func (r *rig) work(q *Request, what string) {
	if r.Draining() {
		q.Unwanted()
		q.Fail(dialect.RouteEncode, errs.ShuttingDown())
		return
	}
	if err := q.CheckEncoding(); err != nil {
		q.Unwanted()
		q.Fail(dialect.RouteEncode, err)
		return
	}
	err := q.Do("things", func(w *admit.Work, body []byte) {
		ctx := w.Context()
		q.Note = Note{
			Model:   "m",
			Items:   1,
			Tokens:  len(body),
			Outputs: []string{"x", "y"},
			Timings: api.Timings{Total: 2 * time.Millisecond},
		}
		n := 0
		size, pass := strings.CutPrefix(what, "pass")
		size, list := strings.CutPrefix(size, "list")
		switch _, err := fmt.Sscan(size, &n); {
		case what == "keep":
			r.kept <- body
		case what == "wait":
			r.working <- struct{}{}
			select {
			case <-ctx.Done():
				r.ended <- context.Cause(ctx)
				q.Fail(dialect.RouteEncode, errs.As(context.Cause(ctx)))
				return
			case <-r.release:
			}
		case err == nil:
			if err := w.Hold(int64(n), 1); err != nil {
				q.Fail(dialect.RouteEncode, errs.As(err))
				return
			}
			body = bytes.Repeat([]byte("x"), n)
		}
		answer := bytes.Clone(body)
		if list {
			texts := slices.Repeat([]string{string(answer[:1000])}, n/1000)
			q.Reply(api.JSON,
				func(dst []byte, to *api.Sink) []byte { return api.AppendTEITexts(dst, to, texts) })
			return
		}
		if pass {
			q.Pass(200, "text/plain", answer)
			return
		}
		q.Reply(api.Msgpack, func(dst []byte, _ *api.Sink) []byte { return append(dst, answer...) })
	})
	if err != nil {
		q.Fail(dialect.RouteEncode, errs.As(err))
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path,
		strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (r *rig) dial() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func receive(t *testing.T, br *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func TestRouting(t *testing.T) {
	keys, err := tenant.Open(tenant.Options{Keys: []string{"first", "second"}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{
		Product:   "test/1",
		Keys:      keys,
		AccessLog: true,
		Unrouted: func(path string) (dialect.RouteKind, *errs.Error) {
			if path == "/elsewhere" {
				return dialect.RouteOpenAI, errs.OutOfScope(path)
			}
			return dialect.RouteNative, nil
		}})
	for _, c := range []struct {
		method, path, key string
		status            int
		text              string
	}{
		{"GET", "/open", "", 200, "open"}, {"HEAD", "/open", "", 200, ""}, {"GET", "/", "", 401, "API key"},
		{"GET", "/", "third", 401, "API key"},
		{"GET", "/", "second", 200, "root"}, {"GET", "/item/a%2Fb//..", "first", 200, "a/b//.."},
		{"GET", "/item/", "first", 404, "Not Found"},
		{"GET", "/nothing", "first", 404, "Not Found"}, {"GET", "/nothing", "", 401, "API key"},
		{"POST", "/item/x", "first", 405, ""},
		{"GET", "/elsewhere", "first", 501, "not_implemented"}, {"GET", "/elsewhere", "", 401, "API key"},
		{"GET", "/%zz", "", 400, "percent-encoding"},
		{"POST", "/work/echo", "", 401, "API key"}, {"POST", "/work/echo", "first", 200, "hello"},
	} {
		path := c.path
		if path == "/%zz" { // net/http would not send it
			conn, br := r.dial()
			fmt.Fprintf(conn, "GET /%%zz HTTP/1.1\r\nHost: x\r\n\r\n")
			if a := receive(t, br); a.status != 400 || !strings.Contains(a.body, c.text) {
				t.Errorf("%s: %d %s", c.path, a.status, a.body)
			}
			continue
		}
		a := r.do(c.method, path, "hello", "X-API-Key", c.key, "X-Request-ID", "id-1")
		if a.status != c.status || !strings.Contains(a.body, c.text) ||
			a.header.Get("X-Request-ID") != "id-1" || a.header.Get("X-SIE-Request-ID") != "id-1" ||
			a.header.Get("Server") != "test/1" {
			t.Errorf("%s %s with %q: %d %v %s", c.method, c.path, c.key, a.status, a.header, a.body)
		}
	}
	if a := r.do("POST", "/item/x", "", "X-API-Key", "first"); a.header.Get("Allow") != "GET" {
		t.Errorf("405 with %v", a.header)
	}
	log := r.log.String()
	for _, want := range []string{"path=/work/echo status=200 error=\"\" model=m items=1 tokens=5", "key=key-2",
		"bytes_out=5", "id=id-1", "error=UNAUTHORIZED"} {
		if !strings.Contains(log, want) {
			t.Errorf("the access log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "hello") || strings.Contains(log, "third") {
		t.Errorf("the log holds what a client sent:\n%s", log)
	}
}

func TestPanics(t *testing.T) {
	r := start(t, Options{CORSOrigins: []string{"https://a.example"}})
	for _, method := range []string{"GET", "POST"} {
		a := r.do(method, "/panic", strings.Repeat("x", 20_000), "Origin", "https://a.example")
		if a.status != 500 || !strings.Contains(a.body, "INTERNAL_ERROR") ||
			strings.Contains(a.body, "boom") ||
			a.header.Get("Access-Control-Allow-Origin") != "https://a.example" {
			t.Errorf("%s: %d %v %s", method, a.status, a.header, a.body)
		}
	}
	if log := r.log.String(); strings.Count(log, "panic=boom") != 2 ||
		!strings.Contains(log, "server_test.go") {
		t.Errorf("the log does not say where the panic was: %s", log)
	}
	if l := r.Load(); l.HeldBytes != 0 || l.Running != 0 || l.Watches != 0 {
		t.Errorf("after panics %+v", l)
	}
}

func TestBoundsOnWork(t *testing.T) {
	r := start(t, Options{
		MaxBodyBytes: 10_000,
		Gate:         admit.New(admit.Options{MaxHeldBytes: 100_000, Timeout: 50 * time.Millisecond}),
	})
	for _, c := range []struct {
		path, body string
		headers    []string
		status     int
		text       string
	}{
		{"/work/echo", strings.Repeat("x", 10_000), nil, 200, "xxx"},
		{"/work/echo", strings.Repeat("x", 10_001), nil, 413, "10000"},
		{"/work/echo", "x", []string{"Content-Encoding", "gzip"}, 415, "compressed"},
		{"/work/50000", "x", nil, 200, "xxx"},
		{"/work/200000", "x", nil, 400, "Field 'things': the results take"},
		{"/work/wait", "x", nil, 504, "50ms"},
	} {
		a := r.do("POST", c.path, c.body, c.headers...)
		if a.status != c.status || !strings.Contains(a.body, c.text) {
			t.Errorf("%s: %d %.200s", c.path, a.status, a.body)
		}
	}
	<-r.working
	<-r.ended
	testrig.Until(t, "nothing is held", func() bool { return r.Load() == Load{Conns: r.Load().Conns} })
}

// Held bytes come back when their requests end; until then more are refused with a 503.
func TestHeldBytesAreShared(t *testing.T) {
	r := start(t, Options{Gate: admit.New(admit.Options{MaxHeldBytes: 100_000})})
	c, _ := r.dial()
	fmt.Fprintf(c, "POST /work/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\nabc")
	testrig.Until(t, "its body's room is taken", func() bool { return r.Load().HeldBytes == 90_000 })
	if a := r.do("POST", "/work/echo", strings.Repeat("x", 20_000)); a.status != 503 ||
		a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "90000 bytes pending") {
		t.Errorf("a body: %d %v %s", a.status, a.header, a.body)
	}
	if a := r.do("POST", "/work/20000", "x"); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("results: %d %v %s", a.status, a.header, a.body)
	}
	c.Close()
	testrig.Until(t, "it is given back", func() bool { return r.Load().HeldBytes == 0 })
	if a := r.do("POST", "/work/20000", "x"); a.status != 200 {
		t.Errorf("then: %d %s", a.status, a.body)
	}
}

// The bytes of an answer are held until it is written, whole, in pieces or as it is. They come back
// then, and when its client leaves in the middle.
func TestAnswersGiveTheirBytesBack(t *testing.T) {
	r := start(t, Options{Gate: admit.New(admit.Options{MaxHeldBytes: 64 << 20})})
	given := func() bool { return r.Load().HeldBytes == 0 }
	for _, how := range []string{"", "pass"} {
		for _, size := range []int{50_000, 500_000, 3_000_000} {
			path := fmt.Sprintf("/work/%s%d", how, size)
			if a := r.do("POST", path, "x"); a.status != 200 || len(a.body) != size {
				t.Fatalf("%s: %d with %d bytes", path, a.status, len(a.body))
			}
			testrig.Until(t, "an answer that was read is not held", given)
		}
		c, _ := r.dial()
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(c, "POST /work/%s30000000 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", how)
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if n := r.Load().HeldBytes; n < 30_000_000 {
			t.Errorf("%s%d bytes are held while the answer is written", how, n)
		}
		c.Close()
		testrig.Until(t, "an answer that nobody reads is not held", given)
	}
}

// An answer in pieces may refer to its request, whose bytes are held until it is written.
func TestRequestIsHeldWhileItsAnswerIsMade(t *testing.T) {
	r := start(t, Options{Gate: admit.New(admit.Options{MaxHeldBytes: 64 << 20})})
	c, _ := r.dial()
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(c, "POST /work/list30000000 HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n%s",
		strings.Repeat("x", 2_000_000))
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	testrig.Until(t, "its work has ended", func() bool { return r.Load().Running == 0 })
	if n := r.Load().HeldBytes; n < 32_000_000 {
		t.Errorf("%d bytes are held while the answer is written", n)
	}
	c.Close()
	testrig.Until(t, "nothing is held", func() bool { return r.Load().HeldBytes == 0 })
}

// A client that leaves ends its request's context.
func TestHangUpEndsTheWork(t *testing.T) {
	r := start(t, Options{})
	for _, leave := range []func(net.Conn){
		func(c net.Conn) { c.Close() }, func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
	} {
		c, _ := r.dial()
		fmt.Fprintf(c, "POST /work/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
		<-r.working
		// The request before may have told its end and be counted still.
		testrig.Until(t, "one request runs and is watched", func() bool {
			n := r.Load()
			return n.Running == 1 && n.Watches == 1
		})
		leave(c)
		if err := <-r.ended; !errors.Is(err, admit.ErrClientGone) {
			t.Errorf("ended by %v", err)
		}
	}
}

// A client that leaves during a later request of its connection ends that request, and no request
// before it; the next connection, which may have the same descriptor, is told of its own client.
func TestHangUpOfALaterRequest(t *testing.T) {
	r := start(t, Options{})
	for range 3 {
		c, br := r.dial()
		for range 3 {
			fmt.Fprintf(c, "POST /work/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
			if a := receive(t, br); a.status != 200 || a.body != "x" {
				t.Fatalf("%+v", a)
			}
		}
		fmt.Fprintf(c, "POST /work/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
		<-r.working
		if n := r.Load(); n.Watches != 1 {
			t.Errorf("%+v", n)
		}
		c.Close()
		select {
		case err := <-r.ended:
			if !errors.Is(err, admit.ErrClientGone) {
				t.Errorf("ended by %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the request goes on without its client")
		}
		testrig.Until(t, "the request has ended", func() bool { return r.Load().Watches == 0 })
	}
}

// While a server drains, work is refused, other routes answer, running requests finish, and each
// answer is the last of its connection.
func TestDrain(t *testing.T) {
	r := start(t, Options{IdleGrace: time.Hour})
	busy, busyAnswers := r.dial()
	fmt.Fprintf(busy, "POST /work/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	<-r.working
	kept, keptAnswers := r.dial()
	fmt.Fprintf(kept, "GET /open HTTP/1.1\r\nHost: x\r\n\r\n")
	receive(t, keptAnswers)
	down := make(chan error, 1)
	go func() { down <- r.Shutdown(context.Background()) }()
	testrig.Until(t, "it drains", r.Draining)
	if a := r.do("POST", "/work/echo", "x"); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("work: %d %v %s", a.status, a.header, a.body)
	}
	fmt.Fprintf(kept, "GET /open HTTP/1.1\r\nHost: x\r\n\r\n")
	if a := receive(t, keptAnswers); a.status != 200 || a.header.Get("Connection") != "close" {
		t.Errorf("another route: %d %v", a.status, a.header)
	}
	close(r.release)
	if a := receive(t, busyAnswers); a.status != 200 || a.body != "x" {
		t.Errorf("what ran: %d %s", a.status, a.body)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Errorf("a second call: %v", err)
	}
}

// Requests that still run when the time for draining is up end with a 503.
func TestDrainRunsOutOfTime(t *testing.T) {
	r := start(t, Options{})
	c, answers := r.dial()
	fmt.Fprintf(c, "POST /work/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	<-r.working
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "1 requests still ran") {
		t.Errorf("%v", err)
	}
	if a := receive(t, answers); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if n := r.Load(); n.Running != 0 {
		t.Errorf("%+v", n)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := start(t, Options{MaxConns: 2, MaxHeadBytes: 2048})
	for range 2 {
		c, br := r.dial()
		fmt.Fprintf(c, "GET /open HTTP/1.1\r\nHost: x\r\n\r\n")
		receive(t, br)
	}
	_, br := r.dial()
	if a := receive(t, br); a.status != 503 || a.header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "2 open connections") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestHeadsAreChecked(t *testing.T) {
	r := start(t, Options{MaxHeadBytes: 2048})
	for sent, status := range map[string]int{
		"GET /open HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 3000) + "\r\n\r\n": 431,
		"GET /open HTTP/1.1\r\nHost: x\nA: b\r\n\r\n":                                   400,

		"POST /work/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
	} {
		c, br := r.dial()
		fmt.Fprint(c, sent)
		if a := receive(t, br); a.status != status || a.header.Get("Connection") != "close" {
			t.Errorf("%.60q: %d %v %s", sent, a.status, a.header, a.body)
		}
	}
	hasty := start(t, Options{HeadTimeout: 100 * time.Millisecond}) // alone: a busy machine is slow to read
	c, br := hasty.dial()
	fmt.Fprint(c, "GET /open HTTP/1.1\r\nHost:")
	if a := receive(t, br); a.status != 408 || a.header.Get("Connection") != "close" {
		t.Errorf("half a head: %d %v %s", a.status, a.header, a.body)
	}
	c, br = r.dial()
	fmt.Fprintf(c,
		"POST /work/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")
	if a := receive(t, br); a.status != 413 {
		t.Errorf("a body that would be refused: %d %s", a.status, a.body)
	}
}

func TestCORS(t *testing.T) {
	r := start(t, Options{CORSOrigins: []string{"https://a.example"}})
	a := r.do("OPTIONS", "/work/echo", "", "Origin", "https://a.example", "Access-Control-Request-Method",
		"POST", "Access-Control-Request-Headers", "x-a")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Headers") != "x-a" ||
		a.header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	a = r.do("POST", "/work/echo", "x", "Origin", "https://b.example")
	if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "" ||
		a.header.Get("Vary") != "Origin" {
		t.Errorf("another origin: %d %v", a.status, a.header)
	}
	for _, name := range []string{"X-SIE-Warning", "X-Request-ID", "Retry-After", "X-SIE-Error-Code"} {
		if !strings.Contains(", "+exposed+",", ", "+name+",") {
			t.Errorf("scripts of other origins cannot read %s", name)
		}
	}
}

func TestSpans(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(memory)).Tracer("t")
	r := start(t,
		Options{Tracer: tracer, SpanAttributes: []attribute.KeyValue{attribute.String("who", "me")}})
	a := r.do("POST", "/work/echo", "x", "X-Request-ID", "id-2", "traceparent",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	spans := memory.GetSpans()
	if len(spans) != 1 || spans[0].Name != "work" ||
		a.header.Get("X-Trace-ID") != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Fatalf("%v %v", spans, a.header)
	}
	got := map[string]string{}
	for _, kv := range spans[0].Attributes {
		got[string(kv.Key)] = kv.Value.String()
	}
	for k, want := range map[string]string{
		"who":             "me",
		"model":           "m",
		"batch_size":      "1",
		"output_types":    "x,y",
		"request_id":      "id-2",
		"timing.total_ms": "2",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	r.do("GET", "/open", "")
	if len(memory.GetSpans()) != 1 {
		t.Error("a route without a name has a span")
	}
}

// All wrong options are reported together.
func TestOptionsAreValidated(t *testing.T) {
	_, err := New(Options{MaxConns: -1, HeadTimeout: -time.Second, MaxHeadBytes: 100}, nil)
	if err == nil || !strings.Contains(err.Error(), "MaxConns") ||
		!strings.Contains(err.Error(), "HeadTimeout") ||
		!strings.Contains(err.Error(), "MaxHeadBytes must be at least 1024") {
		t.Errorf("%v", err)
	}
	if err := (&Options{}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// A body belongs to its request: the bodies of later requests take no byte of it.
func TestBodiesBelongToTheirRequests(t *testing.T) {
	r := start(t, Options{})
	for _, size := range []int{100, 10_000, 2 << 20} {
		body := func(c string) string { return strings.Repeat(c, size) }
		if a := r.do("POST", "/work/keep", body("a")); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		for range 8 {
			if a := r.do("POST", "/work/echo", body("b")); a.body != body("b") {
				t.Errorf("%d bytes: the answer is another", size)
			}
		}
		if kept := string(<-r.kept); kept != body("a") {
			t.Errorf("%d bytes: another request wrote over a body", size)
		}
	}
}
