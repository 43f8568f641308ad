package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/runtime/service"
)

func guarded(t *testing.T, keys ...string) *tenant.Access {
	t.Helper()
	k, err := tenant.Open(tenant.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Every route except the documented ones needs a key, and refuses in its own envelope.
func TestKeys(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.Keys, o.DefaultModels = guarded(t, "first-key", "second"), []string{model}
	})
	open := map[string]bool{
		"/healthz": true, "/livez": true, "/readyz": true, "/health": true, "/": true,
		"/docs": true, "/openapi.json": true, "/static/page.js": true,
	}
	for _, route := range new(Server).routes(inference.New(inference.Options{})) {
		path := route.Path
		switch {
		case path == "/static/":
			path += "page.js"
		case path != "/" && strings.HasSuffix(path, "/"):
			path += model
		}
		a := r.do(route.Method, path, oneText)
		if wanted := route.Method == "POST" || !open[path]; wanted != (a.status == 401) {
			t.Errorf("%s %s without a key: %d %s", route.Method, path, a.status, a.body)
		} else if wanted && (a.header.Get("WWW-Authenticate") == "" || !json.Valid(a.body) ||
			!strings.Contains(string(a.body), "API key")) {
			t.Errorf("%s %s: %v %s", route.Method, path, a.header, a.body)
		}
	}
	for _, c := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/v1/nothing", nil, 401}, // it does not tell whether a route exists
		{"/v1/chat/completions", nil, 401},
		{encodePath, []string{"Authorization", "Bearer first-key"}, 200},
		{encodePath, []string{"Authorization", "bearer  second "}, 200},
		{encodePath, []string{"X-API-Key", "second"}, 200},
		{encodePath, []string{"X-API-Key", "first-ke"}, 401},
		{encodePath, []string{"X-API-Key", "first-key2"}, 401},
		{encodePath, []string{"X-API-Key", ""}, 401},
		{encodePath, []string{"X-API-Key", strings.Repeat("k", 600)}, 401},
		{encodePath, []string{"Authorization", "Basic first-key"}, 401},
		{encodePath, []string{"Authorization", "first-key"}, 401},
		{encodePath, []string{"Authorization", "Bearer wrong", "X-API-Key", "second"}, 401},
		{"/v1/chat/completions", []string{"X-API-Key", "second"}, 501},
	} {
		if a := r.do("POST", c.path, oneText,
			append(c.headers, "Content-Type", "application/json")...); a.status != c.status {
			t.Errorf("%s %v: %d %s, want %d", c.path, c.headers, a.status, a.body, c.status)
		}
	}
	// Each route has its own error envelope.
	for path, want := range map[string]string{
		"/embed":         `"error_type"`,
		"/v2/rerank":     `{"message":`,
		"/v1/rerank":     `"detail":"`,
		"/v1/embeddings": `"invalid_api_key"`,
		encodePath:       `"UNAUTHORIZED"`,
	} {
		if a := r.do("POST", path, "{}"); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	// A client that waits for 100-continue is refused before it sends its body.
	w := r.dial()
	w.send("POST " + encodePath +
		" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999\r\n\r\n")
	if a := w.receive("POST"); a.status != 401 {
		t.Errorf("Expect: %d %s", a.status, a.body)
	}
	if strings.Contains(r.log.String(), "first-key") {
		t.Error("a key is in the log")
	}
}

// A browser sends its key to the status socket as a subprotocol.
func TestKeysOnTheStatusSocket(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.Keys = guarded(t, "käy"[:1]+"ey") })
	for _, c := range []struct {
		protocols []string
		header    http.Header
		ok        bool
	}{
		{nil, nil, false},
		{nil, http.Header{"Authorization": {"Bearer key"}}, true},
		{[]string{"sie", "sie.key." + base64.RawURLEncoding.EncodeToString([]byte("key"))}, nil, true},
		{[]string{"sie", "sie.key." + base64.RawURLEncoding.EncodeToString([]byte("kez"))}, nil, false},
		{[]string{"sie", "sie.key." + "?"}, nil, false},
	} {
		d := websocket.Dialer{Subprotocols: c.protocols}
		conn, resp, err := d.Dial("ws://"+r.addr+"/ws/status", c.header)
		if (err == nil) != c.ok {
			t.Errorf("%v %v: %v", c.protocols, c.header, err)
		}
		if err == nil {
			if _, _, err := conn.ReadMessage(); err != nil ||
				(c.protocols != nil && resp.Header.Get("Sec-WebSocket-Protocol") != "sie") {
				t.Errorf("%v: %v, %v", c.protocols, err, resp.Header)
			}
			conn.Close()
		}
	}
}

func TestRequestIDs(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.AccessLog = true })
	long := strings.Repeat("i", 257)
	for _, c := range []struct {
		method, path, body string
		headers            []string
		want               string
	}{
		{"POST", encodePath, oneText, []string{"X-Request-ID", "abc-1"}, "abc-1"},
		{"POST", encodePath, oneText, []string{"X-SIE-Request-ID", "s/2"}, "s/2"},
		{"POST", encodePath, oneText, []string{"X-Request-ID", "a b", "X-SIE-Request-ID", "s"}, "s"},
		{"POST", encodePath, "{", []string{"X-Request-ID", "bad"}, "bad"},
		{"GET", "/v1/nothing", "", []string{"X-Request-ID", "none"}, "none"},
		{"GET", "/healthz", "", nil, ""},
		{"GET", "/metrics", "", []string{"X-Request-ID", long}, ""},
		{"GET", "/healthz", "", []string{"X-Request-ID", "é"}, ""},
	} {
		a := r.do(c.method, c.path, c.body, append(c.headers, "Accept", "application/json")...)
		id := a.header.Get("X-Request-ID")
		if id == "" || id != a.header.Get("X-SIE-Request-ID") || (c.want != "" && id != c.want) ||
			(c.want == "" && len(id) != 36) {
			t.Errorf("%s %v: %q, want %q", c.path, c.headers, id, c.want)
		}
	}
	w := r.dial()
	w.send("GET\r\n\r\n")
	if a := w.receive("GET"); len(a.header.Get("X-Request-ID")) != 36 {
		t.Errorf("a bad head: %v", a.header)
	}
	log := r.log.String()
	for _, want := range []string{"id=abc-1", "path=" + encodePath, "status=200", "model=" + model, "items=1",
		"error=INVALID_INPUT", "client=127.0.0.1"} {
		if !strings.Contains(log, want) {
			t.Errorf("the access log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "the cat") {
		t.Error("a text is in the log")
	}
}

func TestCORS(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.CORSOrigins, o.Keys = []string{"https://app.example"}, guarded(t, "k")
	})
	pre := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
		"authorization,content-type"}
	a := r.do("OPTIONS", encodePath, "", append(pre, "Origin", "https://app.example")...)
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		a.header.Get("Access-Control-Allow-Headers") != "authorization,content-type" ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "POST") ||
		a.header.Get("Vary") != "Origin" {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	if a := r.do("OPTIONS", encodePath, "", append(pre, "Origin", "https://evil.example")...); a.status ==
		204 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of another origin: %d %v", a.status, a.header)
	}
	for origin, want := range map[string]string{
		"https://app.example": "https://app.example", "https://app.example.evil": "", "": "",
	} {
		var headers []string
		if origin != "" {
			headers = []string{"Origin", origin}
		}
		a := r.do("POST", encodePath, oneText, append(headers, "X-API-Key", "k")...)
		if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != want ||
			(want != "") != strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "X-Request-ID") {
			t.Errorf("%q: %d %v", origin, a.status, a.header)
		}
	}
	if a := r.do("POST", encodePath, oneText, "Origin", "https://app.example"); a.status != 401 ||
		a.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a script must be able to read the 401: %d %v", a.status, a.header)
	}
	all := start(t, func(o *Options, _ *service.Options) { o.CORSOrigins = []string{"*"} })
	if a := all.do("GET", "/healthz", "", "Origin",
		"https://x"); a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Vary") != "" {
		t.Errorf("all: %v", a.header)
	}
	none := start(t, nil)
	if a := none.do("OPTIONS", encodePath, "", append(pre, "Origin", "https://x")...); a.status != 405 ||
		a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("none: %d %v", a.status, a.header)
	}
}

// A browser lets scripts of any page read a WebSocket, so the server checks the page's origin.
func TestStatusSocketOfForeignPages(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.CORSOrigins = []string{"https://app.example"} })
	for _, c := range []struct {
		headers http.Header
		want    int
	}{
		{nil, 101},
		{http.Header{"Origin": {"http://" + r.addr}}, 101},
		{http.Header{"Origin": {"https://app.example"}}, 101},
		{http.Header{"Origin": {"https://evil.example"}}, 403},
		{http.Header{"Origin": {"null"}}, 403},
		{http.Header{"Origin": {"https://sie.example"}, "X-Forwarded-Host": {"sie.example"}}, 101},
		{http.Header{"Origin": {"https://sie.example"}, "Sec-Fetch-Site": {"same-origin"}}, 101},
		{http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}, 403},
	} {
		conn, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws/status", c.headers)
		if resp == nil || resp.StatusCode != c.want {
			t.Fatalf("%v: %v, %v; want %d", c.headers, resp, err, c.want)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

// Every limit that is a flag reaches the code that applies it.
func TestLimitsAreOptions(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.MaxHeadBytes, o.MaxWatchers = 2048, 1 })
	if a := r.do("GET", "/healthz", "", "X-Long", strings.Repeat("x", 3000)); a.status != 431 ||
		!bytes.Contains(a.body, []byte("2048")) {
		t.Errorf("a long head: %d %s", a.status, a.body)
	}
	one, _, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws/status", nil); err == nil ||
		resp.StatusCode != fasthttp.StatusServiceUnavailable {
		t.Errorf("a second socket: %v", err)
	}
}

// Every endpoint of the reference that is out of scope is a 501 with a code (clients-0.10.md 5).
func TestOutOfScope(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{
		"/v1/generate/org__name", "/v1/chat/completions", "/v1/completions", "/v1/responses",
		"/v1/audio/transcriptions", "/v1/estimate", "/v1/recommend", "/v1/jobs", "/v1/jobs/j",
		"/v1/jobs/j/cancel", "/v1/jobs/j/execute", "/v1/jobs/j/repair", "/v1/files", "/v1/files/f",
		"/v1/files/f/content", "/v1/batches", "/v1/batches/b", "/v1/batches/b/cancel",
	} {
		for _, method := range []string{"GET", "POST"} {
			a := r.do(method, path, "{}")
			if e := a.failure(t); a.status != 501 || e.Error.Code != "not_implemented" ||
				a.header.Get("X-SIE-Error-Code") != "not_implemented" || a.header.Get("Retry-After") != "" {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
}
