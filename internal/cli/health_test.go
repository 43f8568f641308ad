package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
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
