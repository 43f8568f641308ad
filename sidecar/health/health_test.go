package health

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Whatever the worker counts has a series: an unknown name ends the process.
func TestEveryCountHasASeries(t *testing.T) {
	known := map[string]bool{}
	for _, c := range counted {
		known[c[0]] = true
	}
	paths, err := filepath.Glob("../worker/*.go")
	if err != nil || len(paths) < 20 {
		t.Fatal(paths, err)
	}
	found, count := 0, regexp.MustCompile(`\b[cC]ount\("(\w+)", `)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range count.FindAllStringSubmatch(string(text), -1) {
			if found++; !known[m[1]] {
				t.Errorf("%s counts %q, which has no series", path, m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("%d counts were found", found)
	}
}

// The probes say what the state is, /metrics has the series from the start, and the server ends
// with its context.
func TestProbes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, state := NewMetrics(registry), &State{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, state, registry, slog.New(slog.DiscardHandler)) }()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	for _, c := range []struct {
		ready, draining bool
		status          int
	}{{false, false, 503}, {true, false, 200}, {true, true, 503}, {false, true, 503}} {
		state.Set(c.ready, c.draining)
		if status, body := get("/readyz"); status != c.status {
			t.Errorf("ready %v, draining %v: %d %s", c.ready, c.draining, status, body)
		}
		if status, _ := get("/healthz"); status != 200 {
			t.Errorf("/healthz: %d", status)
		}
	}
	for _, c := range counted {
		label := ""
		if c[3] != "" {
			label = "x"
		}
		m.Count(c[0], label)
	}
	m.Call("Ping", "lost", time.Second)
	m.Fetched(time.Second, 5, io.EOF)
	m.Drained(time.Second, true)
	m.Gauges(1, 2, 3)
	_, body := get("/metrics")
	for _, want := range []string{
		"sie_worker_messages_received_total 1", `sie_worker_slices_dropped_total{reason="x"} 1`,
		"sie_worker_ipc_failures_total 1", "sie_worker_kept_result_bytes 3", "sie_worker_queue_depth 1",
		`sie_worker_shutdown_drain_seconds_count{result="deadline"} 1`, "sie_worker_inflight_batches 2",
		`sie_worker_payload_fetch_seconds_count{result="error"} 1`, "sie_worker_payload_bytes_total 5",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if status, _ := get("/other"); status != 404 {
		t.Errorf("another path: %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
