package cli

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
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
		err := (&Health{URL: c.url, Probe: c.probe, Timeout: limit}).run()
		switch {
		case c.want == "" && err != nil,
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s: %v, want %q", c.url, c.probe, err, c.want)
		}
	}
}

// A server that demands certificates of its clients cannot be probed at its own port; the error
// says where it can.
func TestHealthWithoutACertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	c := &Health{URL: server.URL, Probe: "healthz", Timeout: 10 * time.Second, Insecure: true}
	if err := c.run(); err == nil || !strings.Contains(err.Error(), "SIE_METRICS_PORT") {
		t.Errorf("%v, want one that names SIE_METRICS_PORT", err)
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
		err := c.run()
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
	if err := c.run(); err != nil {
		t.Errorf("of a server that was never there: %v", err)
	}

	server = httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c = &Health{URL: server.URL, Probe: "healthz", Timeout: time.Second, Gone: 60 * time.Millisecond}
	if err := c.run(); err == nil || !strings.Contains(err.Error(), "there still, 60ms after") {
		t.Errorf("%v", err)
	}
}

// Without --url the probe goes where serve listens by the variables of its environment.
func TestHealthFindsItsOwnServer(t *testing.T) {
	type serve struct {
		Host    string `default:"0.0.0.0" env:"SIE_T_HOST"`
		Port    int    `default:"8080" env:"SIE_T_PORT,SIE_T_OTHER_PORT"`
		TLSCert string `name:"tls-cert" env:"SIE_TLS_CERT"`
		Client  string `name:"tls-client-ca" env:"SIE_T_CLIENT_CA"`
		MHost   string `name:"metrics-host" env:"SIE_T_METRICS_HOST"`
		MPort   int    `name:"metrics-port" env:"SIE_T_METRICS_PORT"`
	}
	var program struct {
		Serve  serve  `cmd:""`
		Health Health `cmd:""`
	}
	k := kong.Must(&program)
	for _, name := range []string{"SIE_T_HOST", "SIE_T_PORT", "SIE_T_OTHER_PORT", "SIE_TLS_CERT",
		"SIE_T_CLIENT_CA", "SIE_T_METRICS_HOST", "SIE_T_METRICS_PORT"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct{ name, value, want string }{
		{"SIE_T_HOST", "", "http://127.0.0.1:8080"},
		{"SIE_T_OTHER_PORT", "9000", "http://127.0.0.1:9000"},
		{"SIE_T_PORT", "9001", "http://127.0.0.1:9001"},
		{"SIE_T_HOST", "::", "http://127.0.0.1:9001"},
		{"SIE_T_HOST", "::1", "http://[::1]:9001"},
		{"SIE_T_HOST", "10.0.0.5", "http://10.0.0.5:9001"},
		{"SIE_TLS_CERT", "/tls.crt", "https://10.0.0.5:9001"},
		{"SIE_T_METRICS_PORT", "9090", "https://10.0.0.5:9001"},
		{"SIE_T_CLIENT_CA", "/ca.crt", "http://10.0.0.5:9090"},
		{"SIE_T_METRICS_HOST", "0.0.0.0", "http://10.0.0.5:9090"},
		{"SIE_T_METRICS_HOST", "::1", "http://[::1]:9090"},
		{"SIE_T_METRICS_PORT", "0", "https://10.0.0.5:9001"},
	} {
		t.Setenv(c.name, c.value)
		if got, any := own(k.Model.Node); got != c.want || any != strings.HasPrefix(got, "https") {
			t.Errorf("%s=%s: %s, %v; want %s", c.name, c.value, got, any, c.want)
		}
	}
	secret := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secret.Close()
	host, port, err := net.SplitHostPort(secret.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SIE_T_HOST", host)
	t.Setenv("SIE_T_PORT", port)
	t.Setenv("SIE_T_CLIENT_CA", "")
	ask := func(args ...string) error {
		t.Helper()
		ctx, err := k.Parse(append([]string{"health"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		return ctx.Run()
	}
	if err := ask(); err != nil {
		t.Errorf("a server with a certificate: %v", err)
	}
	if err := ask("--url", secret.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an address that is given: %v", err)
	}
	t.Setenv("SIE_TLS_CERT", "")
	if err := ask(); err == nil {
		t.Error("http reached a server of https")
	}
}
