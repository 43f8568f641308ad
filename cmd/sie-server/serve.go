package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sie-engine/sie/internal/build"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/heap"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/server"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/weights/hub"
)

type serveCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`
	batchFlags   `embed:""`

	sie.Security `embed:""`
	sie.Log      `embed:""`
	sie.Limits   `embed:""`
	sie.Metrics  `embed:""`

	Host    string   `help:"Address to listen on." default:"0.0.0.0"`
	Port    int      `help:"Port to listen on." short:"p" default:"8080" range:"0..65535"`
	Preload []string `help:"Models to load before the server is ready, named as with -m; those that would not be served otherwise are." sep:"," env:"SIE_PRELOAD_MODELS"`
	Default []string `name:"default-model" help:"Model of routes that name none (text-embeddings-inference's, a rerank request without one): the first that fits the task. Default: the models of -m." sep:"," env:"SIE_DEFAULT_MODEL"`

	MachineProfile string `help:"What X-SIE-MACHINE-PROFILE must name." env:"SIE_MACHINE_PROFILE"`
	Pool           string `help:"Pool shown in the status." env:"SIE_POOL"`

	IPCSocket    string `name:"ipc-socket" help:"Unix socket for a sidecar, in a directory of mode 0700 that is yours; empty: none." env:"SIE_IPC_SOCKET_PATH" type:"path"`
	IPCHeartbeat bool   `name:"ipc-require-heartbeat" help:"/readyz needs a sidecar that has pinged within 10 s." env:"SIE_IPC_REQUIRE_HEARTBEAT"`

	Reload          bool `help:"Accepted for compatibility; has no effect." hidden:""`
	Instrumentation bool `help:"Accepted for compatibility; has no effect." short:"i" hidden:"" env:"SIE_INSTRUMENTATION"`
}

// Check returns what is wrong with keys, certificates and origins.
func (c *serveCmd) Check() error {
	_, err := c.Secure(slog.New(slog.DiscardHandler))
	return err
}

// Run serves until a signal, until the listener fails, or until a device is lost.
func (c *serveCmd) Run() error {
	log := c.Logger(os.Stderr)
	for _, f := range []struct {
		set  bool
		name string
	}{{c.Reload, "--reload"}, {c.Instrumentation, "--instrumentation"}} {
		if f.set {
			log.Warn("flag has no effect in this server", "flag", f.name)
		}
	}
	secure, err := c.Secure(log)
	if err != nil {
		return err
	}
	heap.GiveRoom()
	s, err := c.open(log, secure)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: is another server on port %d? Choose one with --port", err, c.Port)
		}
		return errors.Join(err, s.stop())
	}
	if secure.TLS != nil {
		l = tls.NewListener(l, secure.TLS)
	}
	log.Info("sie-server", "version", build.Version, "commit", build.Commit, "address", l.Addr().String(),
		"device", s.models.DeviceName(), "precision", s.models.Precision(),
		"models", s.models.Catalog().Len(), "api_keys", secure.Access != nil, "tls", secure.TLS != nil)
	for _, d := range s.models.Devices() {
		log.Info("device", aboutDevice(d)...)
	}
	s.ready = func() { log.Info("ready", "url", url(l.Addr(), secure.TLS != nil)) }
	signals, cancel := sie.UntilSignal()
	defer cancel()
	return s.run(signals, l)
}

// open opens everything that the flags ask for, and begins to watch the models directory. Nothing
// is loaded or served yet. The caller closes it.
func (c *serveCmd) open(log *slog.Logger, secure sie.Secured) (s *serving[*service.Service], err error) {
	all, err := c.files()
	if err != nil {
		return nil, err
	}
	c.sourceFlags.preload = c.Preload
	for _, ref := range ids(c.Preload) {
		if _, err := all.Resolve(ref); err == nil {
			c.known = append(c.known, ref)
		}
	}
	selected, err := c.narrow(context.Background(), all)
	if err != nil {
		return nil, err
	}
	cat, bundle := selected.catalog, selected.bundle
	for _, w := range cat.Warnings() {
		log.Warn("catalog", "problem", w.Error())
	}
	defaults, err := defaultModels(c.Default, c.Models, cat)
	if err != nil {
		return nil, err
	}
	s = &serving[*service.Service]{
		log: log, preload: append(ids(c.Pinned), selected.preload...), drain: c.DrainTimeout,
		ready: func() {},
	}
	opened := s // where an error is returned, s is nil
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	series := metrics.New()
	w, err := newWorker(&c.sourceFlags, &c.computeFlags, &c.batchFlags, cat, log, series, c.Admission(),
		logProgress(log.Info))
	if err != nil {
		return nil, err
	}
	if secure.Access != nil {
		series.Registry.MustRegister(secure.Access)
	}
	s.models = w
	s.closes("models", func(end time.Time) { closeBy(end, "models", log, w.Close) })
	opt := server.Options{
		Options:        c.Server(secure, &c.Log, log),
		Limits:         c.Requests(),
		DefaultModels:  defaults,
		MachineProfile: cmp.Or(c.MachineProfile, c.GPUType, w.GPUType()),
		Name:           server.WorkerName(),
		Pool:           c.Pool,
		Bundle:         "default",
		MaxWatchers:    c.MaxWatchers,
	}
	telemetry, err := c.Telemetry(context.Background(), "sie-server", build.Version, series.Registry, log)
	if err != nil {
		return nil, err
	}
	if telemetry != nil {
		s.closes("telemetry", func(end time.Time) { closeTelemetry(end, telemetry, log) })
		opt.Tracer = telemetry.Tracer
	}
	if bundle != nil {
		opt.Bundle, opt.BundleHash = bundle.Name, selected.hash
	}
	if c.IPCHeartbeat && c.IPCSocket == "" {
		return nil, errors.New("--ipc-require-heartbeat needs --ipc-socket: without it no sidecar can ping")
	}
	var entrance *ipcEntrance
	if c.IPCHeartbeat {
		opt.Beating = func() bool { return entrance != nil && entrance.server.Beating() }
	}
	front, err := server.New(w, opt)
	if err != nil {
		return nil, err
	}
	s.server = front
	var reload *reloader
	if c.IPCSocket == "" {
		reload = newReloader(&c.sourceFlags, all, w, front, log)
	} else {
		if entrance, err = c.openIPC(w, front, selected, opt); err != nil {
			return nil, err
		}
		s.closes("ipc", func(end time.Time) { closeBy(end, "ipc", log, entrance.close) })
		reload = newReloader(&c.sourceFlags, all, entrance, entrance, log)
	}
	s.closes("reloader", func(time.Time) { reload.close() })
	_, closeMetrics, err := c.Metrics.Serve(c.Host, series.Registry, front.Probes(), log)
	if err != nil {
		return nil, err
	}
	s.closes("metrics", func(time.Time) { closeMetrics() })
	return s, nil
}

// aboutDevice returns what the log says about an open device.
func aboutDevice(d engine.Info) []any {
	if d.Kind == engine.CUDA {
		return []any{"name", fmt.Sprintf("cuda:%d", d.Ordinal), "model", d.Name, "capability", d.Capability,
			"driver_cuda", d.Driver, "memory_mib", d.MemoryTotal >> 20}
	}
	about := []any{"name", d.Kind.String(), "model", d.Name, "isa", d.ISA.String(), "threads", d.Threads}
	if d.Nodes > 1 { // why says whether the kernel places memory
		about = append(about, "nodes", d.NodesUsed, "why", d.Why)
	}
	return about
}

type preloader interface {
	Preload(ctx context.Context, id string) error
}

func preload(ctx context.Context, w preloader, ids []string) error {
	var all error
	for _, id := range ids {
		all = errors.Join(all, w.Preload(ctx, id))
	}
	return all
}

func url(a net.Addr, secure bool) string {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if secure {
		return "https://localhost:" + port
	}
	return "http://localhost:" + port
}

// maxProgress bounds the downloads whose last log line is remembered.
const maxProgress = 1000

// logProgress logs the start of each download, every tenth of it, and its end. Several downloads
// may run at once.
func logProgress(info func(string, ...any)) func(hub.Progress) {
	var mu sync.Mutex
	last := map[string]int64{} // by model
	news := func(p hub.Progress) bool {
		mu.Lock()
		defer mu.Unlock()
		if p.Stage == hub.StageDone {
			delete(last, p.Model)
			return true
		}
		tenth := int64(-1)
		if p.Total > 0 {
			tenth = 10 * p.Bytes / p.Total
		}
		if seen, ok := last[p.Model]; ok && seen == tenth {
			return false
		}
		if len(last) >= maxProgress { // left by downloads that failed
			clear(last)
		}
		last[p.Model] = tenth
		return true
	}
	return func(p hub.Progress) {
		if news(p) {
			info("download", "model", p.Model, "stage", p.Stage, "mib", p.Bytes>>20, "of_mib", p.Total>>20)
		}
	}
}
