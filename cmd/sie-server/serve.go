package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/server"
	"github.com/sie-engine/sie/weights/hub"
)

type serveCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`
	batchFlags   `embed:""`

	Host     string   `help:"Address to listen on." default:"0.0.0.0"`
	Port     int      `help:"Port to listen on." short:"p" default:"8080"`
	Preload  []string `help:"Model ids to load before the server is ready." sep:"," env:"SIE_PRELOAD_MODELS"`
	Verbose  bool     `help:"Log every request that is refused, and why." short:"v"`
	JSONLogs bool     `help:"Log JSON." env:"SIE_LOG_JSON"`

	MaxBody        int           `name:"max-request-body-bytes" help:"Bytes of a request body; more get 413." env:"SIE_MAX_REQUEST_BODY_BYTES" default:"35651584"`
	MaxItemText    int           `name:"max-item-text-bytes" help:"Bytes of text and metadata of one item." env:"SIE_MAX_ITEM_TEXT_BYTES" default:"2097152"`
	MaxItems       int           `help:"Items of a request; 0: no limit." env:"SIE_MAX_ITEMS"`
	MaxScoreItems  int           `help:"Candidates of a score request; 0: no limit." env:"SIE_MAX_SCORE_ITEMS"`
	MaxLabels      int           `help:"Labels of an extract request; 0: no limit." env:"SIE_MAX_LABELS"`
	MaxHeldBytes   int64         `help:"Bytes of request bodies in memory together." env:"SIE_MAX_HELD_BYTES" default:"1073741824"`
	MaxConns       int           `help:"Open connections." env:"SIE_MAX_CONNS" default:"4096"`
	RequestTimeout time.Duration `help:"Time for an answer; later ones get 504." env:"SIE_REQUEST_TIMEOUT" default:"140s"`
	DrainTimeout   time.Duration `help:"Time for running requests at shutdown." env:"SIE_DRAIN_TIMEOUT" default:"25s"`

	MachineProfile string `help:"What X-SIE-MACHINE-PROFILE must name." env:"SIE_MACHINE_PROFILE"`
	Pool           string `help:"Pool shown in the status." env:"SIE_POOL"`

	Reload          bool `help:"Accepted for compatibility; has no effect." hidden:""`
	Tracing         bool `help:"Accepted for compatibility; has no effect." hidden:"" env:"SIE_TRACING_ENABLED"`
	Instrumentation bool `help:"Accepted for compatibility; has no effect." short:"i" hidden:"" env:"SIE_INSTRUMENTATION"`
}

func (c *serveCmd) Run() error {
	log := obs.NewLogger(os.Stderr, c.JSONLogs, c.Verbose)
	for _, f := range []struct {
		set  bool
		name string
	}{{c.Reload, "--reload"}, {c.Tracing, "--tracing"}, {c.Instrumentation, "--instrumentation"}} {
		if f.set {
			log.Warn("flag has no effect in this server", "flag", f.name)
		}
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("--port must be between 0 and 65535, got %d", c.Port)
	}
	all, err := c.files()
	if err != nil {
		return err
	}
	cat, bundle, err := c.narrow(all)
	if err != nil {
		return err
	}
	for _, w := range cat.Warnings() {
		log.Warn("catalog", "problem", w.Error())
	}
	metrics := obs.NewMetrics()
	w, err := newWorker(&c.sourceFlags, &c.computeFlags, &c.batchFlags, cat, log, metrics, logProgress(log.Info))
	if err != nil {
		return err
	}
	defer w.Close()

	opt := server.Options{
		Limits: api.Limits{MaxBodyBytes: c.MaxBody, MaxItemTextBytes: c.MaxItemText, MaxItems: c.MaxItems,
			MaxScoreItems: c.MaxScoreItems, MaxLabels: c.MaxLabels},
		MaxHeldBytes: c.MaxHeldBytes, MaxConns: c.MaxConns, RequestTimeout: c.RequestTimeout,
		MachineProfile: cmp.Or(c.MachineProfile, c.GPUType, w.GPUType()), Name: server.WorkerName(), Pool: c.Pool, Bundle: "default", Log: log, Metrics: metrics,
	}
	if bundle != nil {
		opt.Bundle, opt.BundleHash = bundle.Name, cat.BundleConfigHash(bundle)
	}
	s, err := server.New(w, opt)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: is another server on port %d? Choose one with --port", err, c.Port)
		}
		return err
	}
	log.Info("sie-server", "version", build.Version, "commit", build.Commit, "address", l.Addr().String(),
		"device", w.DeviceName(), "precision", w.Precision(), "models", cat.Len())
	for _, d := range w.Devices() {
		log.Info("device", aboutDevice(d)...)
	}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	reload := newReloader(&c.sourceFlags, all, w, log)
	defer reload.close()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	loaded := make(chan error, 1)
	go func() { loaded <- preload(stop, w, append(ids(c.Pinned), ids(c.Preload)...)) }()
	for {
		select {
		case err := <-loaded:
			if err != nil {
				log.Error("preload", "error", err)
			}
			s.Ready()
			log.Info("ready", "url", url(l.Addr()))
		case err := <-served:
			return err
		case <-w.LostC():
			log.Error("the device is lost; draining and exiting")
			_ = drain(s, c.DrainTimeout)
			return errors.New("device lost")
		case <-stop.Done():
			log.Info("shutting down: finishing running requests", "at_most", c.DrainTimeout)
			return drain(s, c.DrainTimeout)
		}
	}
}

// aboutDevice is what the log says of an open device.
func aboutDevice(d engine.Info) []any {
	if d.Kind == engine.CUDA {
		return []any{"name", fmt.Sprintf("cuda:%d", d.Ordinal), "model", d.Name, "capability", d.Capability, "driver_cuda", d.Driver,
			"memory_mib", d.MemoryTotal >> 20}
	}
	return []any{"name", d.Kind.String(), "model", d.Name, "isa", d.ISA.String(), "threads", d.Threads}
}

func drain(s *server.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.Shutdown(ctx)
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

func url(a net.Addr) string {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return "http://localhost:" + port
}

// logProgress writes a line when a download starts, at every tenth of it, and when it is done.
func logProgress(info func(string, ...any)) func(hub.Progress) {
	last := map[string]int64{} // calls come one at a time
	return func(p hub.Progress) {
		tenth := int64(-1)
		if p.Total > 0 {
			tenth = 10 * p.Bytes / p.Total
		}
		if seen, ok := last[p.Model]; ok && seen == tenth && p.Stage != hub.StageDone {
			return
		}
		last[p.Model] = tenth
		info("download", "model", p.Model, "stage", p.Stage, "mib", p.Bytes>>20, "of_mib", p.Total>>20)
	}
}
