package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

// What changes models goes to sie-config with the caller's token, as it is, and its answer comes
// back as it is.
func TestRelay(t *testing.T) {
	var changes atomic.Int32
	keys, err := tenant.Open(tenant.Options{Keys: []string{"secret"}})
	if err != nil {
		t.Fatal(err)
	}
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(q.URL.RawQuery, "dry_run"):
			_, _ = io.WriteString(w, `{"dry_run":true,"affected_bundles":["fast"],"epoch":3}`)
			return
		case q.Header.Get("Authorization") == "":
			w.WriteHeader(401)
		case q.Header.Get("Authorization") == "elsewhere":
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(302)
		case q.Method == "POST":
			w.WriteHeader(201)
		}
		_, _ = fmt.Fprint(w, q.Method, " ", q.URL.EscapedPath(), " ", q.Header.Get("Authorization"), " ",
			q.Header.Get("Idempotency-Key"), " ", q.Header.Get(gatewayAuth), " ", string(body))
	}))
	defer control.Close()
	r := start(t, func(o *Options) {
		o.ConfigURL, o.Keys, o.Changed = control.URL, keys, func() { changes.Add(1) }
	})
	for _, c := range []struct {
		method, path, token, body, want string
		status                          int
	}{
		{"POST", "/v1/configs/models", "Bearer admin", "sie_id: x",
			"POST /v1/configs/models Bearer admin k none sie_id: x", 201},
		{"PUT", "/v1/configs/models/org/a", "admin", "x", "PUT /v1/configs/models/org/a admin k none x", 200},
		{"PUT", "/v1/configs/models/org%2Fa%3Fb", "admin", "x",
			"PUT /v1/configs/models/org/a%3Fb admin k none x", 200},
		{"DELETE", "/v1/configs/models/org/../../b", "admin", "",
			"DELETE /v1/configs/models/org/../../b admin k none ", 200},
		{"DELETE", "/v1/configs/models/a//b%2F..%2Fc", "admin", "",
			"DELETE /v1/configs/models/a//b/../c admin k none ", 200},
		{"DELETE", "/v1/configs/models/org/a", "admin", "",
			"DELETE /v1/configs/models/org/a admin k none ", 200},
		{"GET", "/v1/configs/export", "reader", "", "GET /v1/configs/export reader k none ", 200},
		{"GET", "/v1/configs/epoch", "reader", "", "GET /v1/configs/epoch reader k none ", 200},
		{"GET", "/v1/configs/epoch", "", "", "GET /v1/configs/epoch  k none ", 401},
		{"GET", "/v1/configs/epoch", "elsewhere", "", "GET /v1/configs/epoch elsewhere k none ", 302},
		{"POST", "/v1/configs/models", "admin", strings.Repeat("x", maxRelayed+1), "payload_too_large", 413},
	} {
		a := r.do(c.method, c.path, c.body, "Authorization", c.token, "Idempotency-Key", "k")
		if a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s %s: %d %.300s, want %d %s", c.method, c.path, a.status, a.body, c.status, c.want)
		}
	}
	if n := changes.Load(); n != 6 {
		t.Errorf("%d changes were noticed", n)
	}
	a := r.do("POST", "/v1/configs/models", "x", "Authorization", "admin", "Expect", "100-continue")
	if a.status != 201 {
		t.Errorf("a client that asks before it sends: %d %s", a.status, a.body)
	}
	r.worker("w-1", bus.Lane{Pool: "team", Profile: "h100", Bundle: "fast"}, nil)
	r.worker("w-2", bus.Lane{Pool: "default", Profile: "l4", Bundle: "default"}, nil)
	want := `{"affected_bundles":["fast"],"dry_run":true,"epoch":3,"workers_to_reload":1}`
	if a := r.do("POST", "/v1/configs/models?dry_run=true", "x"); a.status != 200 || a.body != want {
		t.Errorf("%d %s", a.status, a.body)
	}
	control.Close()
	if a := r.do("POST", "/v1/configs/models", "x"); a.status != 503 ||
		!strings.Contains(a.body, "config_service_unavailable") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The answers of sie-config count in the gateway's budget while they come and until they are
// written. One that has no room is refused with a retryable 503; a small one needs none.
func TestRelayedAnswersAreHeld(t *testing.T) {
	wait := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(wait) })
	large := strings.Repeat("x", 3<<20)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/configs/export" {
			_, _ = io.WriteString(w, large)
			w.(http.Flusher).Flush()
			<-wait
		}
		_, _ = io.WriteString(w, "end")
	}))
	defer control.Close()
	defer goOn()
	r := start(t, func(o *Options) {
		o.ConfigURL, o.Gate = control.URL, admit.New(admit.Options{MaxHeldBytes: 8 << 20})
	})
	first := make(chan reply, 1)
	go func() { first <- r.do("GET", "/v1/configs/export", "") }()
	testrig.Until(t, "the first answer is held", func() bool { return r.Load().HeldBytes > 4<<20 })
	if a := r.do("GET", "/v1/configs/export", ""); a.status != 503 || a.header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "Queue full") {
		t.Errorf("without room: %d %v %.200s", a.status, a.header, a.body)
	}
	if a := r.do("GET", "/v1/configs/epoch", ""); a.status != 200 || a.body != "end" {
		t.Errorf("a small answer: %d %.200s", a.status, a.body)
	}
	goOn()
	if a := <-first; a.status != 200 || a.body != large+"end" {
		t.Errorf("the first: %d, %d bytes", a.status, len(a.body))
	}
	testrig.Until(t, "all is given back", func() bool { return r.Load().HeldBytes == 0 })
	if a := r.do("HEAD", "/v1/configs/export", ""); a.status != 200 || a.body != "" {
		t.Errorf("only the head: %d, %d bytes", a.status, len(a.body))
	}
	testrig.Until(t, "all of that is given back", func() bool { return r.Load().HeldBytes == 0 })
}
