package server

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/pages"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

// Every route is documented, and everything that is documented is a route.
func TestRoutesAreDocumented(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(pages.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			documented[strings.ToUpper(method)+" "+strings.Replace(path, "{model}", "", 1)] = true
			if len(op.Responses) == 0 {
				t.Errorf("%s %s has no responses", method, path)
			}
		}
	}
	for _, r := range new(Server).routes(inference.New(inference.Options{})) {
		if key := r.Method + " " + r.Path; !documented[key] && !strings.HasPrefix(r.Path, "/static/") {
			t.Errorf("openapi.json lacks %s", key)
		} else {
			delete(documented, key)
		}
	}
	if len(documented) > 0 {
		t.Errorf("openapi.json has routes that do not exist: %v", documented)
	}
}

func TestPlainRoutes(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
		text         string
	}{
		{"GET", "/healthz", 200, "text/plain; charset=utf-8", "ok"},
		{"GET", "/livez?x=1", 200, "text/plain; charset=utf-8", "ok"},
		{"GET", "/readyz", 200, "text/plain; charset=utf-8", "ok"},
		{"GET", "/", 200, "text/html; charset=utf-8", "<title>"},
		{"GET", "/docs", 200, "text/html; charset=utf-8", "<title>"},
		{"GET", "/static/page.css", 200, "text/css; charset=utf-8", "{"},
		{"GET", "/openapi.json", 200, "application/json", `"openapi"`},
		{"GET", "/v1/models", 200, "application/json", `"name":"test/mean"`},
		{"GET", "/v1/models/test/mean", 200, "application/json", `"max_sequence_length":40`},
		{"GET", "/v1/models/test%2Fmean", 200, "application/json", `"dense":32`},
		{"GET", "/v1/models/test/maen", 404, "application/json",
			"Model 'test/maen' not found Did you mean 'test/mean'?"},
		{"GET", "/v1/models/%ff%00", 404, "application/json", "not found"},
		{"GET", "/v1/nothing", 404, "application/json", "Not Found"},
		{"GET", "//healthz", 404, "application/json", "Not Found"},
		{"GET", "/v1/x/../models", 404, "application/json", "Not Found"},
		{"GET", "/v1/models/", 404, "application/json", "Not Found"},
		{"POST", "/v1/encode", 404, "application/json", "Not Found"},
		{"POST", "/v1/encode/", 404, "application/json", "Not Found"},
		{"POST", "/healthz", 405, "application/json", "Method Not Allowed"},
		{"GET", "/v1/embeddings", 405, "application/json", "Method Not Allowed"},
		{"DELETE", encodePath, 405, "application/json", "Method Not Allowed"},
		{"POST", "/v1/chat/completions", 501, "application/json",
			"/v1/chat/completions is not implemented by this server"},
		{"GET", "/v1/jobs/1/cancel", 501, "application/json", "not implemented"},
		{"GET", "/v1/jobsx", 404, "application/json", "Not Found"},
		{"GET", "/ws/status", 426, "text/plain; charset=utf-8", "WebSocket"},
	} {
		a := r.do(c.method, c.path, "")
		if a.status != c.status || a.header.Get("Content-Type") != c.contentType ||
			!strings.Contains(string(a.body), c.text) {
			t.Errorf("%s %s: %d, %s, %.200q; want %d, %s, %q", c.method, c.path, a.status,
				a.header.Get("Content-Type"), a.body, c.status, c.contentType, c.text)
		}
		if c.contentType == "application/json" && !json.Valid(a.body) {
			t.Errorf("%s %s: not JSON: %.200q", c.method, c.path, a.body)
		}
		if c.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
		if !strings.HasPrefix(a.header.Get("Server"), "sie-server/") {
			t.Errorf("%s %s: Server %q", c.method, c.path, a.header.Get("Server"))
		}
	}
	w := r.dial()
	w.send("GET /v1/models/%zz HTTP/1.1\r\nHost: x\r\n\r\n")
	if a := w.receive("GET"); a.status != 400 ||
		!strings.Contains(a.failure(t).Detail.Message, "percent-encoding") {
		t.Errorf("a path that is no percent-encoding: %d %s", a.status, a.body)
	}
}

func TestHead(t *testing.T) {
	r := start(t, nil)
	w := r.dial()
	for _, path := range []string{"/healthz", "/v1/models", "/openapi.json", "/v1/nothing", encodePath} {
		get := r.do("GET", path, "")
		w.send("HEAD " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		head := w.receive("HEAD")
		if head.status != get.status || len(head.body) != 0 ||
			head.header.Get("Content-Length") != strconv.Itoa(len(get.body)) {
			t.Errorf("HEAD %s: %d with %s bytes announced, GET %d with %d",
				path, head.status, head.header.Get("Content-Length"), get.status, len(get.body))
		}
	}
	w.send(getHealth) // the answers to HEAD left no bytes behind
	if a := w.receive("GET"); a.status != 200 || string(a.body) != "ok" {
		t.Errorf("after HEAD: %d %q", a.status, a.body)
	}
}

func TestHTTP10AndPipelining(t *testing.T) {
	r := start(t, nil)
	w := r.dial()
	w.send("GET /healthz HTTP/1.0\r\n\r\n")
	if a := w.receive("GET"); a.status != 200 || string(a.body) != "ok" {
		t.Errorf("HTTP/1.0: %d %q", a.status, a.body)
	}
	w.ended()
	w = r.dial()
	w.send(strings.Replace(post(len(oneText)), "HTTP/1.1", "HTTP/1.0", 1) + oneText)
	if a := w.receive("POST"); a.status != 200 {
		t.Errorf("HTTP/1.0: %d %q", a.status, a.body)
	}
	w.ended()
	// Small and large bodies on one connection: each request gets its own answer, in order.
	large := `{"items":[{"text":"` + strings.Repeat("cat ", 5000) + `"}]}`
	w = r.dial()
	w.send(post(len(oneText)) + oneText + getHealth + post(len(large)) + large + post(len("{")) +
		"{" + getHealth)
	for i, want := range []int{200, 200, 200, 400, 200} {
		a := w.receive("POST")
		if a.status != want {
			t.Errorf("pipelined request %d: %d %.100q, want %d", i, a.status, a.body, want)
		}
		if i == 2 && !strings.Contains(string(a.body), `"input_tokens":40`) {
			t.Errorf("the large body: %.300q", a.body)
		}
	}
}

func TestBadHeads(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.HeadTimeout, o.BodyStall = 200*time.Millisecond, 150*time.Millisecond
	})
	for name, c := range map[string]struct {
		send   string
		status int
		text   string
	}{
		"garbage": {"\x00\x01 garbage\r\n\r\n", 400, "not valid HTTP/1.1"},
		"huge header": {"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 70_000) + "\r\n\r\n",
			431, "larger than 16384 bytes"},
		"slow header":     {"GET /healthz HTTP/1.1\r\nHost:", 408, "did not arrive within 200ms"},
		"slow first byte": {post(9), 408, "the first byte of its body within 150ms of it"},
		"slow small body": {post(9) + `{"it`, 400, "no more than 150ms between two pieces"},
		"two lengths": {
			"POST /v1/encode/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
			400, "both Content-Length and Transfer-Encoding",
		},
		"lengths swapped": {
			"POST /v1/encode/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\ncontent-length: 5\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
			400, "both Content-Length and Transfer-Encoding",
		},
		"bad length": {"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400,
			"not valid HTTP/1.1"},
		"HTTP/9.9":     {"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n", 505, "speaks HTTP/1.1"},
		"HTTP/2.0":     {"PRI * HTTP/2.0\r\nHost: x\r\n\r\n", 505, "speaks HTTP/1.1"},
		"bare LF":      {"GET /healthz HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, "does not end in CRLF"},
		"bare LF, all": {"GET /healthz HTTP/1.1\nHost: x\n\n", 408, "did not arrive within 200ms"},
		"bare LF, end": {"GET /healthz HTTP/1.1\r\nHost: x\r\n\n", 408, "did not arrive within 200ms"},
		"folded":       {"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, ""},
		"identity": {
			"POST /v1/encode/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
			400, "both Content-Length",
		},
		"identity alone": {"POST /v1/encode/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
			400, "is chunked"},
		"gzip, chunked": {"POST /v1/encode/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
			400, "not valid HTTP/1.1"},
		"chunked in 1.0": {
			"POST /v1/encode/x HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
			"must be HTTP/1.1",
		},
		"no host": {"GET /healthz HTTP/1.1\r\nA: b\r\n\r\n", 400, "not valid HTTP/1.1"},
	} {
		w := r.dial()
		if _, err := w.Write([]byte(c.send)); err != nil {
			t.Fatal(err)
		}
		a := w.receive("GET")
		if a.status != c.status || !strings.Contains(a.failure(t).Detail.Message, c.text) {
			t.Errorf("%s: %d %q, want %d, %q", name, a.status, a.body, c.status, c.text)
		}
		if a.header.Get("Connection") != "close" {
			t.Errorf("%s: the connection goes on", name)
		}
		w.ended()
	}
	w := r.dial() // later minor versions are read as HTTP/1.1
	w.send("GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n")
	if a := w.receive("GET"); a.status != 200 {
		t.Errorf("HTTP/1.2: %d %s", a.status, a.body)
	}
}

// A head that is too large is answered even if all of it has been sent. Closing with unread bytes
// would reset the connection before the client has read the answer.
func TestHugeHeadIsAnswered(t *testing.T) {
	r := start(t, nil)
	for range 20 {
		w := r.dial()
		w.send("GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 20_000) + "\r\n\r\n")
		if a := w.receive("GET"); a.status != 431 {
			t.Fatalf("status %d", a.status)
		}
	}
}

func TestBodyCutShort(t *testing.T) {
	r := start(t, nil)
	for sent, want := range map[string]string{
		`{"items":`: "ended early", "": "before the whole request had arrived",
	} {
		w := r.dial()
		w.send(post(100) + sent)
		if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if a := w.receive("POST"); a.status != 400 || !strings.Contains(a.failure(t).Detail.Message, want) {
			t.Errorf("after %q: %d %s", sent, a.status, a.body)
		}
	}
}

func TestCompressedBody(t *testing.T) {
	r := start(t, nil)
	for encoding, want := range map[string]int{
		"gzip": 415, "BR": 415, "zstd": 415, "identity": 200, "utf-8": 200, "": 200, "foo": 415,
		"gzip, gzip": 415, "identity, gzip": 415,
	} {
		a := r.encode(oneText, "Content-Encoding", encoding)
		if a.status != want ||
			want == 415 && !strings.Contains(a.failure(t).Detail.Message, "must not be compressed") {
			t.Errorf("%s: %d %s", encoding, a.status, a.body)
		}
	}
}

func TestPanicInAHandler(t *testing.T) {
	r := start(t, nil, func(s *Server) {
		s.backend.wrap = func(real inference.Session) inference.Session { return panicking{real} }
	})
	a := r.do("POST", scorePath, `{"query":{"text":"a"},"items":[{"text":"b"}]}`+strings.Repeat(" ", 20_000))
	if e := a.failure(t); a.status != 500 || e.Detail.Code != "INTERNAL_ERROR" ||
		strings.Contains(string(a.body), "boom") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if !strings.Contains(r.log.String(), "boom") || !strings.Contains(r.log.String(), "routes_test.go") {
		t.Error("the log does not say where the panic was")
	}
	if a := r.encode(oneText); a.status != 200 || r.load().HeldBytes != 0 {
		t.Errorf("after a panic: %d, %d bytes of bodies held", a.status, r.load().HeldBytes)
	}
}

// No goroutines, descriptors or held bytes are left behind.
func TestNothingLeaks(t *testing.T) {
	r := start(t, nil)
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(list)
	}
	r.encode(oneText)
	r.http.CloseIdleConnections()
	testrig.Until(r.t, "the first connection is closed", func() bool { return r.load().Conns == 0 })
	goroutines, files := runtime.NumGoroutine(), descriptors()
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			mine := &rig{Server: r.Server, t: t, addr: r.addr, http: client}
			for i := range 50 {
				switch (n + i) % 5 {
				case 0:
					mine.encode(oneText)
				case 1:
					mine.encode("{")
				case 2:
					mine.do("GET", "/v1/models", "")
				case 3:
					mine.do("POST", "/v1/nothing", strings.Repeat("x", 30_000))
				default: // sends half a body and leaves
					w := mine.dial()
					w.send(post(20_000) + strings.Repeat(" ", 10_000))
					w.Close()
				}
			}
		})
	}
	all.Wait()
	files++ // the engine's second slot, which may be made only now, keeps an eventfd
	testrig.Until(r.t, "everything is back", func() bool {
		return descriptors() <= files && runtime.NumGoroutine() <= goroutines+1 && r.load().HeldBytes == 0 &&
			r.load().Conns == 0 && r.load().Watches == 0
	})
}

// panicking panics instead of scoring.
type panicking struct{ inference.Session }

func (panicking) Score(*admit.Work, compat.Model, *api.ScoreRequest) (*api.ScoreResponse, error) {
	panic("boom")
}
