package top

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

const health = `{"timestamp":TIME,"ready":true,"cluster":{"worker_count":2,"models_loaded":1},
 "workers":[{"name":"worker-0","pool":"default","gpu":"cpu","bundle":"default","healthy":true,
   "loaded_models":["org/m"],"loading_models":[],"queue_depth":3,"pending_cost":96,"free_credit":400,
   "memory_used_bytes":1048576,"memory_total_bytes":4194304},
  {"name":"w\u001b[2J1","pool":"default","gpu":"cpu","bundle":"default","healthy":false}],
 "models":[{"name":"org/m","state":"loaded","worker_count":1,"total_queue_depth":3}],
 "lanes":[{"pool":"default","machine_profile":"cpu","bundle":"default","workers":2,"ready":1,"items":3,
   "free_credit":400}]}`

const metrics = `# TYPE sie_gateway_nats_connected gauge
sie_gateway_nats_connected 1
# TYPE sie_gateway_requests_total counter
sie_gateway_requests_total{endpoint="encode",machine_profile="any",status="200"} REQUESTS
sie_gateway_requests_total{endpoint="encode",machine_profile="any",status="503"} 2
# TYPE sie_gateway_queue_republishes_total counter
sie_gateway_queue_republishes_total{cause="silent"} AGAIN
sie_gateway_queue_republishes_total{cause="gap"} 0
# TYPE sie_gateway_dead_letters_total counter
sie_gateway_dead_letters_total 1
# TYPE sie_gateway_queue_refusals_total counter
sie_gateway_queue_refusals_total{reason="full"} 2
# TYPE sie_gateway_queue_untaken_items gauge
sie_gateway_queue_untaken_items{pool="default",machine_profile="cpu",bundle="default",model="org/cold"} 70
# TYPE sie_gateway_queue_unanswered_items gauge
sie_gateway_queue_unanswered_items{pool="default",machine_profile="cpu",bundle="default",model="org/m"} 9
# TYPE sie_gateway_queue_items_per_second gauge
sie_gateway_queue_items_per_second{pool="default",machine_profile="cpu",bundle="default",model="org/m"} 12.5
`

// gateway is a server with the pages of a gateway, which wants the key k. Its n-th poll is told n.
func gateway(t *testing.T) *Client {
	t.Helper()
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fill := strings.NewReplacer("TIME", []string{"100", "102", "103"}[n],
			"REQUESTS", []string{"10", "50", "0"}[n], "AGAIN", []string{"1", "5", "0"}[n])
		switch {
		case r.Header.Get("Authorization") != "Bearer k":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/health":
			_, _ = fill.WriteString(w, health)
		case r.URL.Path == "/metrics":
			_, _ = fill.WriteString(w, metrics)
			n++
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return &Client{URL: s.URL + "/", Key: "k", HTTP: s.Client()}
}

// The board shows lanes, models, workers, what waits, credit, rates and what was published again.
func TestTheBoard(t *testing.T) {
	c, b := gateway(t), &Board{}
	if got := b.Render(80, 24, false); got != "waiting for the gateway" {
		t.Errorf("%q", got)
	}
	for range 2 {
		b.Add(c.Poll(t.Context()))
	}
	got := b.Render(130, 50, false)
	for _, want := range []string{
		"SIE cluster  ready  NATS connected  2 workers  1 models loaded",
		"requests 52, with a result 50, refused by the queue 2  dead letters 1",
		"published again 5 (silent 5)", "requests/s       20.0 █", "untaken          70.0 █",
		"again/s           2.0 █", "default/cpu/default", "    1/2             3           400",
		"org/cold                                           not loaded       0        70          0        0       0.0",
		"org/m                                              loaded           1         0          9        3      12.5",
		"worker-0                       default/cpu/default        ready       1       0       3        96         400    1.0 MiB",
		"w?[2J1                         default/cpu/default        away",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the board lacks %q:\n%s", want, got)
		}
	}
	if strings.Index(got, "org/cold") > strings.Index(got, "org/m ") {
		t.Error("what waits most is not first")
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a worker's name may move the cursor")
	}
	for height := 1; height < 30; height++ {
		lines := strings.Split(b.Render(40, height, true), "\n")
		if len(lines) > height {
			t.Fatalf("%d lines of %d", len(lines), height)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "", "\x1b[32m", "",
				"\x1b[31m", "", "\x1b[36m", "").Replace(l)); n > 40 {
				t.Fatalf("%d columns: %q", n, l)
			}
		}
	}
	// What there is no room for is counted, in each table; the last line is never one of many.
	for height := 20; height < 26; height++ {
		lines := strings.Split(b.Render(130, height, false), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "w?[2J1") && !strings.HasPrefix(last, "… ") {
			t.Errorf("%d lines end with %q", height, last)
		}
	}
	// A gateway that is away: the last board, and that it is old. One that begins anew: no rate.
	b.Add(nil, errors.New("connection refused"))
	if got := b.Render(130, 50, false); !strings.Contains(got, "from before: connection refused") ||
		!strings.Contains(got, "org/cold") {
		t.Errorf("%s", got)
	}
	b.Add(c.Poll(t.Context()))
	if got := b.Render(130, 50, false); strings.Contains(got, " -") || strings.Contains(got, "from before") {
		t.Errorf("after a restart:\n%s", got)
	}
}

// What is wrong with the address or the key is said.
func TestPollFails(t *testing.T) {
	c := gateway(t)
	c.Key = ""
	if _, err := c.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "--api-key") {
		t.Errorf("without a key: %v", err)
	}
	c.URL = "http://127.0.0.1:1"
	if _, err := c.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("nobody there: %v", err)
	}
	b := &Board{}
	b.Add(c.Poll(t.Context()))
	if got := b.Render(80, 5, false); !strings.Contains(got, "--url") {
		t.Errorf("%q", got)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>"))
	}))
	defer s.Close()
	c.URL = s.URL
	if _, err := c.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "not that of a gateway") {
		t.Errorf("another server: %v", err)
	}
}
