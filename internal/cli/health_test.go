package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		case "/livez":
			http.Redirect(w, r, "/healthz", http.StatusFound)
		case "/slow/readyz":
			<-release
		}
	}))
	defer server.Close()
	defer close(release)
	for _, c := range []struct{ url, probe, want string }{
		{server.URL, "healthz", ""},
		{server.URL + "/", "healthz", ""},
		{server.URL, "readyz", "/readyz: 503 not ready"},
		{server.URL, "livez", "/livez: 302"},
		{server.URL + "/slow", "readyz", "no answer within 50ms"},
		{"http://127.0.0.1:1", "readyz", "connection refused"},
		{"::", "readyz", "--url ::"},
	} {
		limit := 10 * time.Second
		if strings.HasSuffix(c.url, "/slow") {
			limit = 50 * time.Millisecond
		}
		err := (&Health{URL: c.url, Probe: c.probe, Timeout: limit}).Run()
		switch {
		case c.want == "" && err != nil,
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s: %v, want %q", c.url, c.probe, err, c.want)
		}
	}
}

// With Gone the probe ends when nothing listens any more, and not before: neither a server that is
// not ready nor one that does not answer is gone. After Gone it says that the server is there
// still.
func TestHealthWaitsUntilTheServerHasGone(t *testing.T) {
	var asked, gone atomic.Int64
	ctx := t.Context()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		case 2:
			select { // no answer
			case <-r.Context().Done():
			case <-ctx.Done():
			}
		}
	}))
	defer server.Close()
	c := &Health{URL: server.URL, Probe: "healthz", Timeout: 100 * time.Millisecond, Gone: time.Hour}
	ended := make(chan error, 1)
	go func() {
		err := c.Run()
		if gone.Load() == 0 {
			t.Error("the wait ended while the server was there")
		}
		ended <- err
	}()
	for asked.Load() < 4 { // after each of the three answers it asked again
		time.Sleep(time.Millisecond)
	}
	gone.Store(1)
	server.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := c.Run(); err != nil {
		t.Errorf("of a server that was never there: %v", err)
	}

	server = httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c = &Health{URL: server.URL, Probe: "healthz", Timeout: time.Second, Gone: 60 * time.Millisecond}
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "there still, 60ms after") {
		t.Errorf("%v", err)
	}
}
