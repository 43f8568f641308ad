package cli

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/httpd"
)

// The port of the metrics serves them and the probes and nothing else, until it is closed.
func TestMetricsPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := Metrics{MetricsHost: "127.0.0.1", MetricsPort: l.Addr().(*net.TCPAddr).Port}
	series := prometheus.NewRegistry()
	series.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "x"}, func() float64 { return 7 }))
	if _, _, err := f.Serve("192.0.2.1", series, nil, slog.Default()); err == nil ||
		!strings.Contains(err.Error(), "--metrics-port") {
		t.Errorf("a port that is taken: %v", err)
	}
	addr, end, err := serveMetrics(l, series, []httpd.Route{{Method: "GET", Path: "/readyz", Open: true,
		Serve: func(r *httpd.Request, _ string) { r.Plain(503, "not yet") }}}, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/metrics": "x 7", "/readyz": "not yet", "/v1/models": "NOT_FOUND",
	} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s, %v", path, b, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	end()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it is still open")
	}
	if _, end, err := (&Metrics{}).Serve("127.0.0.1", series, nil, slog.Default()); err != nil {
		t.Error(err)
	} else {
		end()
	}
}
