// Command sie-sidecar runs beside a sie-server: it pulls work from NATS, has the server run it and
// sends the results to the gateways that wait for them. This package holds flags and wiring only.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/heap"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/health"
	"github.com/sie-engine/sie/sidecar/worker"
	"github.com/sie-engine/sie/weights/payload"
)

type cli struct {
	NATSURL string `name:"nats-url" help:"NATS servers, separated by commas." env:"SIE_NATS_URL" required:""`

	bus.Access `embed:""`

	Pool           string `help:"Pool of this worker's lane." env:"SIE_POOL" required:""`
	Bundle         string `help:"Bundle of its lane." env:"SIE_BUNDLE" required:""`
	MachineProfile string `help:"Machine profile of its lane." env:"SIE_MACHINE_PROFILE" required:""`
	WorkerID       string `help:"Id of this worker in the cluster; by default the host's name." env:"SIE_WORKER_ID"`

	Socket       string        `name:"ipc-socket" help:"Socket of the server." env:"SIE_IPC_SOCKET_PATH" default:"/tmp/sie-ipc.sock" type:"path"`
	ProbeHost    string        `help:"Address of the probes and metrics." env:"SIE_WORKER_PROBE_HOST" default:"0.0.0.0"`
	ProbePort    int           `help:"Their port; 0 takes a free one and logs it." env:"SIE_WORKER_PROBE_PORT" default:"9095" range:"0..65535"`
	DrainTimeout time.Duration `help:"Longest time from SIGTERM until work in hand is given back. The exit is two seconds later at most." env:"SIE_DRAIN_TIMEOUT" default:"25s" range:"1s..1h"`
	Stall        time.Duration `name:"stall-timeout" help:"Time without progress of the server after which its work goes to another worker." env:"SIE_STALL_TIMEOUT" default:"30s" range:"1s..1h"`
	PayloadStore string        `name:"payload-store" help:"Where the gateways leave large payloads: a directory, s3://bucket/prefix or gs://bucket/prefix." env:"SIE_PAYLOAD_STORE_URL"`

	Config      string   `name:"config-url" help:"Address of sie-config, or of a gateway, which passes questions on to it: the models that the server has. Without it they come from the server's own files." env:"SIE_CONFIG_SERVICE_URL"`
	ConfigToken string   `name:"config-token" help:"Token for reading from sie-config." env:"SIE_CONFIG_SERVICE_TOKEN,SIE_CONFIG_READ_TOKEN,SIE_ADMIN_TOKEN"`
	Trusted     []string `name:"trusted-producers" help:"Names of those whose word on changes of models is heard over NATS: a name, or what it begins with before a dash." sep:"," env:"SIE_NATS_CONFIG_TRUSTED_PRODUCERS" default:"sie-config"`

	bus.Streams `embed:""`

	// a host whose clock is wrong, for tools/chaos
	ClockOffset time.Duration `name:"test-clock-offset" hidden:"" env:"SIE_TEST_CLOCK_OFFSET" range:"-1h..1h"`

	sie.Log
	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var c cli
	k, err := newParser(&c).Parse(os.Args[1:])
	if err == nil {
		err = errors.Join(sie.CheckRanges(k), sie.CheckPaths(k))
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		oneLoop()
		err = c.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sie-sidecar:", err)
		os.Exit(1)
	}
}

// newParser returns the parser that reads a command line into c.
func newParser(c *cli) *kong.Kong {
	return kong.Must(c, kong.Name("sie-sidecar"), sie.Paths(),
		kong.Description("Pulls work from NATS for the sie-server beside it."),
		kong.Vars{"version": fmt.Sprintf("sie-sidecar %s (%s)", build.Version, build.Commit)},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
}

// run works until ctx ends and the drain is over.
func (c *cli) run(ctx context.Context) error {
	log := c.Log.Logger(os.Stderr)
	if c.WorkerID == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("no worker id: set SIE_WORKER_ID (%w)", err)
		}
		c.WorkerID = host
	}
	registry := obs.NewRegistry()
	config := worker.Config{
		Lane: bus.Lane{Pool: c.Pool, Profile: c.MachineProfile, Bundle: c.Bundle}, ID: c.WorkerID,
		NATS:    bus.Options{URL: c.NATSURL, Access: c.Access},
		Streams: c.Streams,
		Socket:  c.Socket, DrainTimeout: c.DrainTimeout, Stall: c.Stall, Log: log,
		ClockOffset: c.ClockOffset,
		Metrics:     health.NewMetrics(registry), State: &health.State{},
		AccessLog: c.Log.Access,
		Control:   control.Options{URL: c.Config, Token: c.ConfigToken, Trusted: c.Trusted},
	}
	telemetry, err := c.Log.Telemetry(context.Background(), "sie-sidecar", build.Version, registry, log)
	if err != nil {
		return err
	}
	if telemetry != nil {
		config.Tracer = telemetry.Tracer
		defer closeTelemetry(telemetry, log)
	}
	if c.PayloadStore != "" {
		store, err := payload.Open(c.PayloadStore)
		if err != nil {
			return err
		}
		config.Store = store
	}
	probes, err := net.Listen("tcp", net.JoinHostPort(c.ProbeHost, strconv.Itoa(c.ProbePort)))
	if err != nil {
		return fmt.Errorf("the port of the probes, SIE_WORKER_PROBE_PORT: %w", err)
	}
	w, err := worker.New(config)
	if err != nil {
		return errors.Join(err, probes.Close())
	}
	if f := w.Control(); f != nil {
		f.Register(registry)
	}
	log.Info("sie-sidecar", "version", build.Version, "worker", c.WorkerID, "lane", config.Lane.String(),
		"socket", c.Socket, "probes", probes.Addr().String())
	served, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- health.Serve(served, probes, config.State, registry, log) }()
	err = w.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// oneLoop fits the Go runtime to what a sidecar is: one event loop, and readers and writers that
// hand it small pieces. A second processor would be woken for each piece and find nothing to do.
// GOMAXPROCS and GOGC are the user's where they are set.
func oneLoop() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	heap.GiveRoom()
}

// telemetryTime bounds the sending of what waits for the collector.
const telemetryTime = 2 * time.Second

// closeTelemetry sends what waits for the collector.
func closeTelemetry(t *obs.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), telemetryTime)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("telemetry", "error", err)
	}
}
