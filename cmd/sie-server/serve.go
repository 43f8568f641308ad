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
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/server"
	"github.com/sie-engine/sie/weights/hub"
)

type serveCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`
	batchFlags   `embed:""`

	securityFlags `embed:""`

	Host     string   `help:"Address to listen on." default:"0.0.0.0"`
	Port     int      `help:"Port to listen on." short:"p" default:"8080" range:"0..65535"`
	Preload  []string `help:"Models to load before the server is ready, named as with -m; those that would not be served otherwise are." sep:"," env:"SIE_PRELOAD_MODELS"`
	Default  []string `name:"default-model" help:"Model of routes that name none (text-embeddings-inference's, a rerank request without one): the first that fits the task. Default: the models of -m." sep:"," env:"SIE_DEFAULT_MODEL"`
	Verbose  bool     `help:"Log every request that is refused: its id, code and field; never a text, a key or a header." short:"v"`
	JSONLogs bool     `help:"Log JSON; the same as --log-format json." env:"SIE_LOG_JSON"`
	Format   string   `name:"log-format" help:"text or json." env:"SIE_LOG_FORMAT" default:"text" enum:"text,json"`
	Access   bool     `name:"access-log" help:"Log every request: id, path, status, model, counts and times; never texts or keys." env:"SIE_ACCESS_LOG"`
	Tracing  bool     `help:"Send traces and metrics to an OTLP collector; the OTEL_ variables say where." env:"SIE_TRACING_ENABLED"`

	MaxBody        int           `name:"max-request-body-bytes" help:"Bytes of a request body; more get 413." env:"SIE_MAX_REQUEST_BODY_BYTES" default:"35651584" range:"1..1099511627776"`
	MaxItemText    int           `name:"max-item-text-bytes" help:"Bytes of text and metadata of one item." env:"SIE_MAX_ITEM_TEXT_BYTES" default:"2097152" range:"1..1099511627776"`
	MaxItems       int           `help:"Items of a request; 0: no limit." env:"SIE_MAX_ITEMS" range:"0..1073741824"`
	MaxScoreItems  int           `help:"Candidates of a score request; 0: no limit." env:"SIE_MAX_SCORE_ITEMS" range:"0..1073741824"`
	MaxLabels      int           `help:"Labels of an extract request; 0: no limit." env:"SIE_MAX_LABELS" range:"0..1073741824"`
	MaxHeldBytes   int64         `help:"Bytes of request bodies and results in memory together." env:"SIE_MAX_HELD_BYTES" default:"1073741824" range:"1..1125899906842624"`
	MaxConns       int           `help:"Open connections." env:"SIE_MAX_CONNS" default:"4096" range:"1..1048576"`
	RequestTimeout time.Duration `help:"Time for an answer; later ones get 504." env:"SIE_REQUEST_TIMEOUT" default:"140s" range:"1ms..24h"`
	DrainTimeout   time.Duration `help:"Time that a shutdown may take: running requests finish, then models are closed; what is left then ends with the process." env:"SIE_DRAIN_TIMEOUT" default:"25s" range:"0s..24h"`

	MaxHeadBytes int           `help:"Bytes of a request's head; more get 431." env:"SIE_MAX_HEAD_BYTES" default:"16384" range:"1024..1048576"`
	HeadTimeout  time.Duration `help:"Time for a request's head." env:"SIE_HEAD_TIMEOUT" default:"30s" range:"1ms..24h"`
	BodyTimeout  time.Duration `help:"Time for a request's body." env:"SIE_BODY_TIMEOUT" default:"5m" range:"1ms..24h"`
	BodyStall    time.Duration `help:"Time between two pieces of a body." env:"SIE_BODY_STALL" default:"20s" range:"1ms..24h"`
	WriteTimeout time.Duration `help:"Time for a client to take an answer." env:"SIE_WRITE_TIMEOUT" default:"2m" range:"1ms..24h"`
	KeepAlive    time.Duration `help:"Time a connection may be idle." env:"SIE_KEEP_ALIVE" default:"2m" range:"1ms..24h"`
	MaxWatchers  int           `name:"max-status-sockets" help:"Open status sockets." env:"SIE_MAX_STATUS_SOCKETS" default:"256" range:"1..65536"`

	MachineProfile string `help:"What X-SIE-MACHINE-PROFILE must name." env:"SIE_MACHINE_PROFILE"`
	Pool           string `help:"Pool shown in the status." env:"SIE_POOL"`

	Reload          bool `help:"Accepted for compatibility; has no effect." hidden:""`
	Instrumentation bool `help:"Accepted for compatibility; has no effect." short:"i" hidden:"" env:"SIE_INSTRUMENTATION"`
}

// check says what is wrong with keys, certificates and origins.
func (c *serveCmd) check() error {
	_, err := c.secure(slog.New(slog.DiscardHandler))
	return err
}

func (c *serveCmd) Run() error {
	log := obs.NewLogger(os.Stderr, c.JSONLogs || c.Format == "json", c.Verbose)
	for _, f := range []struct {
		set  bool
		name string
	}{{c.Reload, "--reload"}, {c.Instrumentation, "--instrumentation"}} {
		if f.set {
			log.Warn("flag has no effect in this server", "flag", f.name)
		}
	}
	secure, err := c.secure(log)
	if err != nil {
		return err
	}
	all, err := c.files()
	if err != nil {
		return err
	}
	c.sourceFlags.preload = c.Preload
	for _, ref := range ids(c.Preload) {
		if _, err := all.Resolve(ref); err == nil {
			c.known = append(c.known, ref)
		}
	}
	selected, err := c.narrow(context.Background(), all)
	if err != nil {
		return err
	}
	cat, bundle := selected.catalog, selected.bundle
	for _, w := range cat.Warnings() {
		log.Warn("catalog", "problem", w.Error())
	}
	defaults, err := defaultModels(c.Default, c.Models, cat)
	if err != nil {
		return err
	}
	series := metrics.New()
	w, err := newWorker(&c.sourceFlags, &c.computeFlags, &c.batchFlags, cat, log, series, logProgress(log.Info))
	if err != nil {
		return err
	}
	var end time.Time // of the time that shutting down has
	defer func() { closeBy(end, "models", log, w.Close) }()

	opt := server.Options{
		Options: httpd.Options{Log: log, Keys: secure.keys, CORSOrigins: secure.origins, AccessLog: c.Access,
			MaxHeldBytes: c.MaxHeldBytes, MaxConns: c.MaxConns, MaxHeadBytes: c.MaxHeadBytes, RequestTimeout: c.RequestTimeout,
			HeadTimeout: c.HeadTimeout, BodyTimeout: c.BodyTimeout, BodyStall: c.BodyStall, WriteTimeout: c.WriteTimeout, KeepAlive: c.KeepAlive},
		Limits: api.Limits{MaxBodyBytes: c.MaxBody, MaxItemTextBytes: c.MaxItemText, MaxItems: c.MaxItems,
			MaxScoreItems: c.MaxScoreItems, MaxLabels: c.MaxLabels},
		DefaultModels: defaults, MachineProfile: cmp.Or(c.MachineProfile, c.GPUType, w.GPUType()), Name: server.WorkerName(),
		Pool: c.Pool, Bundle: "default", Metrics: series, MaxWatchers: c.MaxWatchers,
	}
	if c.Tracing {
		telemetry, err := obs.StartTelemetry(context.Background(), "sie-server", build.Version, series.Registry, log)
		if err != nil {
			return err
		}
		defer func() { closeTelemetry(end, telemetry, log) }()
		opt.Tracer = telemetry.Tracer
	}
	if bundle != nil {
		opt.Bundle, opt.BundleHash = bundle.Name, selected.hash
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
	if secure.tls != nil {
		l = tls.NewListener(l, secure.tls)
	}
	log.Info("sie-server", "version", build.Version, "commit", build.Commit, "address", l.Addr().String(),
		"device", w.DeviceName(), "precision", w.Precision(), "models", cat.Len(),
		"api_keys", secure.keys != nil, "tls", secure.tls != nil)
	for _, d := range w.Devices() {
		log.Info("device", aboutDevice(d)...)
	}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	reload := newReloader(&c.sourceFlags, all, w, s, log)
	defer reload.close()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	loaded := make(chan error, 1)
	go func() { loaded <- preload(stop, w, append(ids(c.Pinned), selected.preload...)) }()
	for {
		select {
		case err := <-loaded:
			if err != nil {
				log.Error("preload", "error", err)
			}
			s.Ready()
			log.Info("ready", "url", url(l.Addr(), secure.tls != nil))
		case err := <-served: // requests run on; the worker is closed after them
			end = time.Now().Add(c.DrainTimeout)
			return errors.Join(err, drain(s, end))
		case <-w.LostC():
			log.Error("the device is lost; draining and exiting")
			end = time.Now().Add(c.DrainTimeout)
			_ = drain(s, end)
			return errors.New("device lost")
		case <-stop.Done():
			cancel() // a second signal ends the process at once
			log.Info("shutting down: finishing running requests; a second signal stops at once", "at_most", c.DrainTimeout)
			end = time.Now().Add(c.DrainTimeout)
			return drain(s, end)
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
