package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// serving is a gateway of this process, as the flags of a command line make it.
type serving struct {
	*running
	t    *testing.T
	url  string
	log  *testrig.Log
	end  context.CancelFunc // stands for a signal
	done chan error
}

// serve runs a gateway until the test ends.
func serve(t *testing.T, line string) *serving {
	t.Helper()
	c, err := parse(t, "serve --host 127.0.0.1 --port 0 "+line)
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{t: t, log: &testrig.Log{}, done: make(chan error, 1)}
	if s.running, err = c.Serve.open(slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + s.listener.Addr().String()
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	go func() { s.done <- s.run(ctx) }()
	t.Cleanup(func() {
		s.end()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		s.close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func (s *serving) get(path string) (status int, body string) {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const oneLane = `--lanes=[{"pool":"default","machineProfile":"cpu","bundle":"default"}]`

// A gateway starts while its broker is away and says what it waits for. It is ready when the broker
// is there, and stays ready when the broker goes away again.
func TestServeFollowsTheBroker(t *testing.T) {
	broker := bustest.Start(t, nil)
	broker.Stop()
	s := serve(t, "--drain-delay 0s --nats-url "+broker.URL+" "+oneLane)
	if status, body := s.get("/readyz"); status != 503 || body != "not ready: NATS is not connected" {
		t.Errorf("%d %s", status, body)
	}
	broker.Restart()
	testrig.Until(t, "the gateway is ready", func() bool {
		status,
			_ := s.get("/readyz")
		return status == 200
	})
	if _, body := s.get("/metrics"); !strings.Contains(body, "sie_gateway_nats_connected 1") {
		t.Error("the metrics do not say that NATS is connected")
	}
	broker.Stop()
	testrig.Until(t, "the outage is noticed", func() bool {
		_, body := s.get("/metrics")
		return strings.Contains(body, "sie_gateway_nats_connected 0")
	})
	if status, body := s.get("/readyz"); status != 200 {
		t.Errorf("the gateway left service with its broker: %d %s", status, body)
	}
}

// Where clients need a certificate, the port for metrics says without one whether the gateway is
// ready.
func TestServeTellsProbesWithoutACertificate(t *testing.T) {
	ca := testrig.NewAuthority(t)
	ca.SignServer("gateway")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	broker := bustest.Start(t, nil)
	s := serve(t, "--drain-delay 10m --nats-url "+broker.URL+" "+oneLane+" --metrics-port "+port+
		" --tls-cert "+ca.Path("gateway")+" --tls-key "+ca.Path("gateway-key")+
		" --tls-client-ca "+ca.Path("ca"))
	s.url = "http://127.0.0.1:" + port
	s.untilReady()
	s.end()
	testrig.Until(t, "the gateway says that it leaves", func() bool {
		status, body := s.get("/readyz")
		return status == 503 && body == "draining"
	})
	if status, body := s.get("/healthz"); status != 200 {
		t.Errorf("healthz: %d %s", status, body)
	}
	if err := s.server.Shutdown(t.Context()); err != nil { // ends the delay
		t.Error(err)
	}
}

// Without a worker a request is told to wait, by a concrete lane.
func TestServeWithoutWorkers(t *testing.T) {
	broker := bustest.Start(t, nil)
	s := serve(t, "--drain-delay 0s --nats-url "+broker.URL+" "+oneLane)
	testrig.Until(t, "the gateway is ready", func() bool {
		status,
			_ := s.get("/readyz")
		return status == 200
	})
	resp, err := http.Post(s.url+"/v1/encode/BAAI/bge-m3", "application/json",
		strings.NewReader(`{"items":[{"text":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 202 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if _, body := s.get("/metrics"); !strings.Contains(body,
		`sie_gateway_pending_demand{bundle="default",machine_profile="cpu",pool="default"} 1`) {
		t.Error("the demand for the lane is not told")
	}
}

// A signal ends readiness at once. The gateway serves on for the delay, and only then drains.
func TestASignalEndsReadinessFirst(t *testing.T) {
	broker := bustest.Start(t, nil)
	s := serve(t, "--drain-delay 10m --nats-url "+broker.URL+" "+oneLane)
	testrig.Until(t, "the gateway is ready", func() bool {
		status,
			_ := s.get("/readyz")
		return status == 200
	})
	s.end()
	testrig.Until(t, "the gateway is not ready", func() bool {
		status,
			_ := s.get("/readyz")
		return status == 503
	})
	if status, _ := s.get("/v1/models"); status != 200 {
		t.Errorf("a request during the delay: %d", status)
	}
	select {
	case err := <-s.done:
		t.Errorf("the gateway has ended: %v", err)
	default:
	}
	if err := s.server.Shutdown(t.Context()); err != nil { // ends the delay
		t.Error(err)
	}
}

// Unknown and contradictory settings are refused before anything is opened.
func TestServeSettings(t *testing.T) {
	for _, c := range []struct {
		line string
		env  []string // name, value
		want string   // "" if it is fine
	}{
		{line: "serve"},
		{line: "serve " + oneLane},
		{line: "serve", env: []string{"SIE_AUTH_MODE", "Static"},
			want: `SIE_AUTH_MODE is "Static"`},
		{line: "serve", env: []string{"SIE_AUTH_MODE", "static"}, want: "there is no key"},
		{line: "serve", env: []string{"SIE_AUTH_MODE", "token", "SIE_AUTH_TOKENS", "a, b"}},
		{line: "serve", env: []string{"SIE_AUTH_TOKEN", "a"}},
		{line: "serve", env: []string{"SIE_AUTH_MODE", "none", "SIE_AUTH_TOKEN", "a"},
			want: "there are keys"},
		{line: "serve", env: []string{"SIE_AUTH_TOKEN", ""}, want: "SIE_AUTH_TOKEN is set but holds no"},
		{line: "serve", env: []string{"SIE_AUTH_TOKENS", " , "}, want: "SIE_AUTH_TOKENS is set but holds no"},
		{line: "serve", env: []string{"SIE_AUTH_MODE", "none", "SIE_AUTH_TOKEN", ""}},
		{line: "serve", env: []string{"SIE_AUTH_TOKEN", "with space"}, want: "API key 1"},
		{line: "serve", env: []string{"SIE_NATS_USER", "u"}, want: "or neither"},
		{line: "serve", env: []string{"SIE_NATS_USER", "u", "SIE_NATS_PASSWORD", "p"}},
		{line: "serve --lanes=[]"},
		{line: "serve --model-aliases={}"},
		{line: "serve --model-aliases=[]", want: "SIE_GATEWAY_MODEL_ALIASES: the aliases are no object"},
		{line: "serve --lanes={}", want: "SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES: the lanes are not a list"},
		{line: "serve --config-url http://c --models-dir x", want: "sie-config's"},
		{line: "serve --stream-replicas 2", want: "use 1, 3 or 5"},
		{line: "serve --stream-replicas 9", want: "stream replicas is 9; use 1, 3 or 5"},
		{line: "serve", env: []string{"SIE_GATEWAY_REQUEST_TIMEOUT", "0.5"},
			want: "from SIE_GATEWAY_REQUEST_TIMEOUT"},
		{line: "serve", env: []string{"SIE_GATEWAY_REQUEST_TIMEOUT", "30.0"}},
	} {
		t.Run(c.line+strings.Join(c.env, " "), func(t *testing.T) {
			for i := 0; i+1 < len(c.env); i += 2 {
				t.Setenv(c.env[i], c.env[i+1])
			}
			_, err := parse(t, c.line)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(),
				c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// The time for an answer, and the queue's share of it.
func TestServeTimes(t *testing.T) {
	for _, c := range []struct {
		line           string
		answer, queued time.Duration
	}{
		{"serve", 140 * time.Second, 138 * time.Second},
		{"serve --request-timeout 1s", time.Second, 500 * time.Millisecond},
		{"serve --request-timeout-s 30.5", 30500 * time.Millisecond, 28500 * time.Millisecond},
	} {
		k, err := parse(t, c.line)
		if err != nil {
			t.Fatal(err)
		}
		if a, q := k.Serve.times(); a != c.answer || q != c.queued {
			t.Errorf("%s: %v, %v", c.line, a, q)
		}
	}
}

// A variable that nothing reads is named (weak point 31).
func TestVariablesWithoutEffect(t *testing.T) {
	k, err := newParser(&cli{}).Parse([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	got := unread([]string{"SIE_GATEWAY_PORT=1", "SIE_GATEWAY_MACHINE_PROFILES={}", "PATH=x",
		"SIE_GATEWAY_HEALTH_MODE=ws", "SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES=[]"}, k.Flags())
	if want := []string{"SIE_GATEWAY_HEALTH_MODE", "SIE_GATEWAY_MACHINE_PROFILES"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
