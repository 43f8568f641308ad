//go:build native && cuda && emulated

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
)

// serve runs `sie-server serve` with these flags on a free port. ended receives what it returns.
func serve(t *testing.T, flags ...string) (url string, ended chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	k, err := newParser(&cli{}).Parse(
		append([]string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port)}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- sie.Run(k) }()
	return fmt.Sprintf("http://127.0.0.1:%d", port), ended
}

func get(url string) (int, string) {
	r, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// A server on two GPUs answers requests and shows both in its metrics. When one GPU dies in a
// batch, the request gets a 503 that sends the client elsewhere, and the process ends with an
// error, whatever the other GPU does.
func TestServeUntilAGPUDies(t *testing.T) {
	standIn := func(command string) {
		if _, err := engine.StandIn(command); err != nil {
			t.Fatal(err)
		}
	}
	standIn("devices 2")
	t.Cleanup(func() { standIn("reset"); standIn("devices 1") })
	url, ended := serve(t, "--device", "cuda:0,1", "--max-batch-tokens", "128", "--preload", "tiny",
		"--drain-timeout", "5s", "--models", "tiny="+golden.Open(t, "st-mean").Dir)
	testrig.Until(t, "the server is ready",
		func() bool { status, _ := get(url + "/readyz"); return status == 200 })
	ask := func() (int, string, http.Header) {
		body, _ := json.Marshal(map[string]any{"model": "tiny", "input": []string{"the cat", "sat"}})
		r, err := http.Post(url+"/v1/embeddings", "application/json", bytes.NewReader(body))
		if err != nil {
			return 0, err.Error(), nil
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(b), r.Header
	}
	for range 3 {
		if status, body, _ := ask(); status != 200 {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	_, metrics := get(url + "/metrics")
	for _, want := range []string{
		`sie_device_memory_used_bytes{device="cuda:1"}`, `sie_model_loaded{device="cuda:0",model="tiny"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	standIn("fail kernel 5 719")
	status, body, header := 200, "", http.Header(nil)
	for range 20 { // a batch has more than five kernels, but it may run on the other GPU
		if status, body, header = ask(); status != 200 {
			break
		}
	}
	if status != 503 || header.Get("Retry-After") == "" ||
		!strings.Contains(body, "Retry on another instance") || strings.Contains(body, "719") {
		t.Errorf("status %d, Retry-After %q: %s", status, header.Get("Retry-After"), body)
	}
	select {
	case err := <-ended:
		if err == nil || err.Error() != "device lost" {
			t.Errorf("the server ends with %v, want an error for the exit status", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the server goes on with a lost card")
	}
}

func TestServeOnAGPUThatIsNotThere(t *testing.T) {
	_, ended := serve(t, "--device", "cuda:7", "--models", "tiny="+golden.Open(t, "st-mean").Dir)
	if err := <-ended; err == nil ||
		!strings.Contains(err.Error(), "there is no cuda:7; the driver shows cuda:0") {
		t.Errorf("it ends with %v", err)
	}
}
