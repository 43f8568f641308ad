package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// cause makes what an alert warns of, and returns what ends it.
type cause struct {
	alert string
	begin func(ctx context.Context, h *harness) (end func() error, err error)
}

var causes = []cause{
	{"SIEWorkerDown", stopped(rig.Target{Role: rig.Server})},
	{"SIESidecarDown", stopped(rig.Target{Role: rig.Sidecar})},
	{"SIENoHealthyWorkers", stopped(rig.Target{Role: rig.Sidecar}, rig.Target{Role: rig.Sidecar, Index: 1})},
	{"SIEGatewayDown", stopped(rig.Target{Role: rig.Edge, Index: 1})},
	{"SIEConfigDown", func(_ context.Context, h *harness) (func() error, error) {
		pid := h.state.Config.PID
		return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
	}},
	{"SIEWorkerHighQueueDepth", flood(40, encode(slices.Repeat([]string{"!sleep=2s"}, 64)...))},
	// Without tenants a gateway holds nothing back.
	{"SIECreditExhausted", throughGateway(150, encode("!sleep=4s "+strings.Repeat("long ", 2000)))},
	{"SIEHighLatency", flood(8, encode("!sleep=6s"))},
	{"SIEResourceExhaustedSpike", flood(2, encode("!oom"))},
	{"SIEHighErrorRate", throughGateway(4, encode("!sleep=3s"), "SIE_REQUEST_TIMEOUT=1s")},
	{"SIEDeadLetters", flood(1, encode("!crash"))},
	{"SIERedeliveries", flood(2, encode("!crash"))},
	{"SIEBrokerDisconnected", nodes(syscall.SIGSTOP, 0, 1, 2)},
	{"SIEBrokerWithoutQuorum", nodes(syscall.SIGSTOP, 1, 2)},
	{"SIETokensFileBroken", func(_ context.Context, h *harness) (func() error, error) {
		return func() error { return h.writeTenants(tenantsFile) }, h.writeTenants("tenants: {")
	}},
	{"SIEClockSkew", skewedWorker},
	{"SIEConfigDrift", driftingGateway},
	{"SIELoadsThrash", restartingServer},
	{"SIEDemandUnmet", demandWithoutWorkers},
}

// stopped stops processes of the cluster.
func stopped(all ...rig.Target) func(context.Context, *harness) (func() error, error) {
	each := func(h *harness, s syscall.Signal) error {
		var errs []error
		for _, t := range all {
			errs = append(errs, h.signal(t, s))
		}
		return errors.Join(errs...)
	}
	return func(_ context.Context, h *harness) (func() error, error) {
		return func() error { return each(h, syscall.SIGCONT) }, each(h, syscall.SIGSTOP)
	}
}

// flood has n callers send a request all the time, and nobody else.
func flood(n int, c call) func(context.Context, *harness) (func() error, error) {
	return func(ctx context.Context, h *harness) (func() error, error) {
		h.traffic.pause()
		end := h.traffic.flood(ctx, n, c)
		return func() error {
			h.traffic.resume()
			return end()
		}, nil
	}
}

// nodes stops NATS servers.
func nodes(s syscall.Signal, which ...int) func(context.Context, *harness) (func() error, error) {
	each := func(h *harness, s syscall.Signal) error {
		var errs []error
		for _, i := range which {
			errs = append(errs, h.nodes.Signal(i, s))
		}
		return errors.Join(errs...)
	}
	return func(ctx context.Context, h *harness) (func() error, error) {
		return func() error {
			return errors.Join(each(h, syscall.SIGCONT), h.nodes.Ready(ctx))
		}, each(h, s)
	}
}

// skewedWorker adds a sidecar to the first server's lane whose clock is 4 s before the others'.
func skewedWorker(_ context.Context, h *harness) (func() error, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse("http://" + address)
	if err != nil {
		return nil, err
	}
	return h.begin("sie-sidecar", "", "sie-sidecar", nil, []string{
		"SIE_NATS_URL=" + h.nodes.URL(), "SIE_POOL=default", "SIE_MACHINE_PROFILE=cpu", "SIE_BUNDLE=default",
		"SIE_WORKER_ID=skewed", "SIE_IPC_SOCKET_PATH=" + h.path("no-server.sock"),
		"SIE_TEST_CLOCK_OFFSET=4s", "SIE_WORKER_PROBE_HOST=127.0.0.1", "SIE_WORKER_PROBE_PORT=" + u.Port(),
	})
}

// gateway adds a gateway that reads a sie-config, and returns its address when it is ready.
func (h *harness) gateway(ctx context.Context, config string, env ...string) (string, func() error, error) {
	address, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse("http://" + address)
	if err != nil {
		return "", nil, err
	}
	end, err := h.begin("sie-gateway", address, "sie-gateway",
		[]string{"serve", "--host", "127.0.0.1", "--port", u.Port(), "--drain-delay", "0s"},
		append(env, "SIE_NATS_URL="+h.nodes.URL(), "SIE_CONFIG_SERVICE_URL="+config,
			`SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES=[{"pool":"default","machineProfile":"cpu","bundle":"default"}]`))
	if err != nil {
		return "", nil, err
	}
	err = until(ctx, patience, func() error {
		resp, err := client.Get(u.String() + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a gateway that was added: %d", resp.StatusCode)
		}
		return nil
	})
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return u.String(), end, nil
}

// throughGateway is flood, through a gateway of its own with some settings.
func throughGateway(n int, c call, env ...string) func(context.Context, *harness) (func() error, error) {
	return func(ctx context.Context, h *harness) (func() error, error) {
		address, end, err := h.gateway(ctx, h.state.Config.URL, env...)
		if err != nil {
			return nil, err
		}
		h.traffic.pause()
		over := newTraffic(address).flood(ctx, n, c)
		return func() error {
			h.traffic.resume()
			return errors.Join(over(), end())
		}, nil
	}
}

// driftingGateway adds a gateway that reads sie-config once and is then cut off from it, and
// changes a model.
func driftingGateway(ctx context.Context, h *harness) (func() error, error) {
	config, err := url.Parse(h.state.Config.URL)
	if err != nil {
		return nil, err
	}
	var cut atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(config)
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	middle := &http.Server{Addr: listen, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if cut.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			proxy.ServeHTTP(w, r)
		})}
	go func() { _ = middle.ListenAndServe() }() // until Close
	_, end, err := h.gateway(ctx, "http://"+listen, "SIE_AUTH_TOKENS_FILE="+h.path("tenants.yaml"))
	if err != nil {
		return nil, err
	}
	cut.Store(true)
	return func() error { return errors.Join(end(), middle.Close()) }, h.putModel(ctx, 24)
}

// putModel gives sie-config another version of a model.
func (h *harness) putModel(ctx context.Context, dim int) error {
	body := `{"model_id":"` + changing + `","hf_id":"test/weights","tasks":{"encode":{"dense":{"dim":` +
		strconv.Itoa(dim) + `}}},"max_sequence_length":256,"profiles":{"default":{"adapter_path":` +
		`"sie_server.adapters.bert_flash:BertFlashAdapter","max_batch_tokens":4096}}}`
	address := h.state.Config.URL + "/v1/configs/models/" + changing
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("sie-config: PUT %s: %d", changing, resp.StatusCode)
	}
	return nil
}

// killEvery is how often restartingServer kills.
const killEvery = 3 * time.Second

// restartingServer kills a server again and again, whose models are then loaded again each time.
func restartingServer(ctx context.Context, h *harness) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = h.signal(rig.Target{Role: rig.Server}, syscall.SIGKILL) // it may not run now
			select {
			case <-ctx.Done():
			case <-time.After(killEvery):
			}
		}
	}()
	return func() error {
		cancel()
		<-ended
		return nil
	}, nil
}

// demandWithoutWorkers asks for a lane that has no worker; the end gives it one.
func demandWithoutWorkers(ctx context.Context, h *harness) (func() error, error) {
	one := encode("a")
	one.pool = emptyPool
	end := h.traffic.flood(ctx, 1, one)
	return func() error {
		err := h.scale(ctx, 3)
		return errors.Join(err, end())
	}, nil
}

// causeAll makes alerts fire, all or those that are named, and returns what was not as it should.
func (h *harness) causeAll(ctx context.Context, some []string) (wrong []error) {
	fmt.Printf("%-28s %8s %8s\n", "alert", "fired", "stopped")
	if err := h.quiet(ctx); err != nil {
		return []error{fmt.Errorf("before anything was caused: %w", err)}
	}
	for _, c := range causes {
		if len(some) > 0 && !slices.Contains(some, c.alert) {
			continue
		}
		if ctx.Err() != nil {
			return append(wrong, ctx.Err())
		}
		fired, stopped, err := h.cause(ctx, c)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", c.alert, err))
			fmt.Printf("%-28s WRONG: %v\n", c.alert, err)
			continue
		}
		fmt.Printf("%-28s %6.1f s %6.1f s\n", c.alert, fired.Seconds(), stopped.Seconds())
	}
	return wrong
}

// cause makes one alert fire and sees it stop.
func (h *harness) cause(ctx context.Context, c cause) (fired, stopped time.Duration, err error) {
	begun := time.Now()
	end, err := c.begin(ctx, h)
	if err != nil {
		return 0, 0, err
	}
	var saw alert
	err = until(ctx, patience, func() error {
		all, err := h.prom.firing()
		if err != nil {
			return err
		}
		var there bool
		if saw, there = all[c.alert]; !there {
			return errors.New("it does not fire")
		}
		return nil
	})
	fired, begun = time.Since(begun), time.Now()
	err = errors.Join(err, end())
	if err == nil && strings.Contains(saw.Notes.Summary, "<no value>") {
		err = fmt.Errorf("its text lacks a label: %q", saw.Notes.Summary)
	}
	if err != nil {
		return fired, 0, err
	}
	err = h.quiet(ctx)
	return fired, time.Since(begun), err
}

// quiet waits until no alert fires.
func (h *harness) quiet(ctx context.Context) error {
	return until(ctx, patience, func() error {
		all, err := h.prom.firing()
		if err != nil {
			return err
		}
		var names []string
		for name, a := range all {
			names = append(names, name+" ("+a.Notes.Summary+")")
		}
		if len(names) > 0 {
			slices.Sort(names)
			return fmt.Errorf("these fire: %s", strings.Join(names, ", "))
		}
		return nil
	})
}
