package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// patience bounds what is waited for; it is not a measure.
const patience = 90 * time.Second

// harness is a cluster that is observed: three NATS servers, two gateways, sie-config, a worker in
// each of two lanes, and a lane without any.
type harness struct {
	bin, dir string
	begun    time.Time
	nodes    *rig.Nodes
	cluster  *rig.Cluster
	prom     *prometheus
	state    rig.State
	traffic  *traffic
	log      *os.File

	mu    sync.Mutex
	extra []target // what causes have started
}

// The lanes, and the tokens of the two tenants and of Prometheus.
const (
	lanes     = "default/cpu/default,second/cpu/default,empty/cpu/default"
	emptyPool = "empty"

	userKey, guestKey, watchKey = "user-0123456789", "guest-0123456789", "watch-0123456789"
)

// tenantsFile is the file of tokens; the guest has a small quota.
const tenantsFile = `tenants:
  - {name: user, tokens: [` + userKey + `], roles: [inference, admin, metrics]}
  - {name: guest, tokens: [` + guestKey + `], items_per_s: 1}
  - {name: watch, tokens: [` + watchKey + `], roles: [metrics]}
`

func (h *harness) path(name string) string { return filepath.Join(h.dir, name) }

func (h *harness) writeTenants(text string) error {
	return os.WriteFile(h.path("tenants.yaml"), []byte(text), 0o600)
}

// start starts everything and waits until Prometheus sees all of it.
func start(ctx context.Context, bin, dir string) (_ *harness, err error) {
	h := &harness{bin: bin, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	if h.log, err = os.Create(h.path("observe.log")); err != nil {
		return nil, err
	}
	if err := h.writeTenants(tenantsFile); err != nil {
		return nil, err
	}
	models, err := writeModels(dir)
	if err != nil {
		return nil, err
	}
	if h.nodes, err = rig.StartNodes(ctx, dir, 3, rig.Disk{}); err != nil {
		return nil, err
	}
	h.cluster, err = rig.StartCluster(ctx, rig.Options{
		Binary: filepath.Join(bin, "sie-gateway"), Dir: h.path("cluster"), Workers: 2, Gateways: 2,
		NATSURL: h.nodes.URL(), Nodes: 3, Storage: "memory", Models: models, Log: h.log,
		Args: []string{"--lanes", lanes},
		Env: []string{"SIE_AUTH_TOKENS_FILE=" + h.path("tenants.yaml"),
			"SIE_CONFIG_STORE_DIR=" + h.path("store")},
	})
	if err != nil {
		return nil, err
	}
	if h.state, err = h.cluster.State(); err != nil {
		return nil, err
	}
	if h.prom, err = startPrometheus(ctx, dir, watchKey); err != nil {
		return nil, err
	}
	h.begun = time.Now()
	if err := h.scrape(); err != nil {
		return nil, err
	}
	h.traffic = newTraffic(h.state.Gateways[0].URL)
	if err := h.traffic.warm(ctx); err != nil {
		return nil, err
	}
	h.traffic.run(ctx)
	return h, until(ctx, patience, func() error {
		n, err := h.prom.answered(`sum(up{job=~"sie-.*"}) == 7`, time.Now().Add(-2*time.Second))
		if err == nil && n == 0 {
			err = errors.New("not everything is scraped")
		}
		return err
	})
}

// scrape has Prometheus scrape the cluster, and what causes have started.
func (h *harness) scrape() error {
	one := func(job, address string) target {
		u, err := url.Parse(address)
		if err != nil {
			panic("observe: internal error: " + err.Error())
		}
		return target{[]string{u.Host}, map[string]string{"job": job}}
	}
	config, err := behind(h.state.Config.URL)
	if err != nil {
		return err
	}
	all := []target{one("sie-config", config)}
	for _, g := range h.state.Gateways {
		all = append(all, one("sie-gateway", g.MetricsURL))
	}
	for _, w := range h.state.Workers {
		server, err := behind(w.ProbeURL)
		if err != nil {
			return err
		}
		all = append(all, one("sie-sidecar", w.MetricsURL), one("sie-worker", server))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.prom.scrape(append(all, h.extra...))
}

// behind returns the address of the next port, which `sie-gateway dev` gives to the metrics of
// sie-config, and to the server beside a sidecar.
func behind(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(u.Port())
	return fmt.Sprintf("http://%s:%d", u.Hostname(), port+1), err
}

// begin starts a program of the cluster beside it, scraped as a job, and returns what ends it.
func (h *harness) begin(job, address, program string, args, env []string) (end func() error, err error) {
	cmd := exec.Command(filepath.Join(h.bin, program), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	before := len(h.extra)
	if address != "" {
		h.extra = append(h.extra, target{[]string{address}, map[string]string{"job": job}})
	}
	h.mu.Unlock()
	if address != "" {
		err = h.scrape()
	}
	return func() error {
		h.mu.Lock()
		h.extra = h.extra[:before]
		h.mu.Unlock()
		err := h.scrape() // before it ends: a machine that is taken away is no target any more
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // its status says nothing of alerts
		return err
	}, err
}

// signal signals a process of the cluster.
func (h *harness) signal(t rig.Target, s syscall.Signal) error {
	_, err := h.cluster.Signal(t, s)
	return err
}

// stop ends everything.
func (h *harness) stop() error {
	var all []error
	if h.traffic != nil {
		h.traffic.stop()
	}
	if h.prom != nil {
		h.prom.stop()
	}
	if h.cluster != nil {
		all = append(all, h.cluster.Stop())
	}
	if h.nodes != nil {
		all = append(all, h.nodes.Stop())
	}
	if h.log != nil {
		all = append(all, h.log.Close())
	}
	return errors.Join(all...)
}
