package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/alias"
	"github.com/sie-engine/sie/gateway/demand"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/gateway/queue"
	"github.com/sie-engine/sie/gateway/quota"
	"github.com/sie-engine/sie/gateway/server"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/heap"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/weights/payload"
)

type serveCmd struct {
	sie.Security `embed:""`
	sie.Log      `embed:""`
	sie.Limits   `embed:""`
	sie.Metrics  `embed:""`

	Host string `help:"Address to listen on." default:"0.0.0.0" env:"SIE_GATEWAY_HOST"`
	Port int    `help:"Port to listen on." short:"p" default:"8080" range:"0..65535" env:"SIE_GATEWAY_PORT"`
	URL  string `help:"Address of this gateway, told in its heartbeats." env:"SIE_GATEWAY_URL"`

	OpenStatus bool `help:"Serve /health and the status sockets also without a key." env:"SIE_AUTH_EXEMPT_OPERATIONAL"`

	NATS string `name:"nats-url" help:"Addresses of NATS, separated by commas." env:"SIE_NATS_URL" default:"nats://127.0.0.1:4222"`

	bus.Access `embed:""`

	Config      string   `name:"config-url" help:"Address of sie-config, which has the models and bundles. Without it they come from the files below." env:"SIE_CONFIG_SERVICE_URL"`
	ConfigToken string   `name:"config-token" help:"Token for reading from sie-config." env:"SIE_CONFIG_SERVICE_TOKEN,SIE_ADMIN_TOKEN"`
	Trusted     []string `name:"trusted-producers" help:"Names of those whose word on changes of models is heard over NATS: a name, or what it begins with before a dash." sep:"," env:"SIE_NATS_CONFIG_TRUSTED_PRODUCERS" default:"sie-config"`
	ModelsDir   string   `help:"Directory of model files, without sie-config. Default: the built-in models." env:"SIE_MODELS_DIR" type:"path"`
	BundlesDir  string   `help:"Directory of bundle files, without sie-config. Default: the built-in bundles." env:"SIE_BUNDLES_DIR" type:"path"`

	Default []string `name:"default-model" help:"Model of routes that name none (text-embeddings-inference's, a rerank request without one): the first that fits the task." sep:"," env:"SIE_DEFAULT_MODEL"`
	Lanes   string   `help:"Lanes of the cluster, as a JSON list of {\"pool\",\"machineProfile\",\"bundle\"} in order of preference; requests go to no other. With \"weight\" lanes of one machine profile and bundle share its requests. Default: those of live workers." env:"SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES"`

	bus.Streams `embed:""`
	PoolLimits  pools.Limits `embed:""`

	Payloads       string        `name:"payload-store" help:"Directory, s3:// or gs:// URL for items that are too large for a message; the workers use the same. Without it such items get 413." env:"SIE_PAYLOAD_STORE_URL"`
	MaxQueueWait   time.Duration `help:"Predicted wait beyond which a new request gets a retryable 503; 0: as long as there is room." default:"5s" range:"0|10ms..1h" env:"SIE_MAX_QUEUE_WAIT"`
	RequestSeconds float64       `name:"request-timeout-s" help:"Seconds for an answer, in place of --request-timeout; 0: that." range:"0|1..86400" env:"SIE_GATEWAY_REQUEST_TIMEOUT"`
	Aliases        string        `name:"model-aliases" help:"Model names that stand for others, as JSON {\"name\":[{\"model\",\"weight\"}]}; a request id always gets the same one." env:"SIE_GATEWAY_MODEL_ALIASES"`
	MaxHolds       int           `help:"Requests that are held at once until there is capacity, by X-SIE-Hold or their token; more are refused as without." default:"256" range:"1..100000" env:"SIE_GATEWAY_MAX_HOLDS"`
	MaxHoldBytes   int64         `help:"Bytes of their bodies." default:"67108864" range:"1..1099511627776" env:"SIE_GATEWAY_MAX_HOLD_BYTES"`
	DrainDelay     time.Duration `help:"Time after a signal in which requests are still served while /readyz says no, for clients that follow it." default:"2s" range:"0s..10m" env:"SIE_GATEWAY_DRAIN_DELAY"`
}

// Check returns what is wrong with the flags beyond their ranges.
func (c *serveCmd) Check() error {
	_, secure := c.Secure(slog.New(slog.DiscardHandler))
	_, _, lanes := c.lanes()
	_, aliases := c.aliases()
	_, access := c.Access.ClientOptions()
	all := []error{secure, lanes, aliases, access}
	if c.Config != "" && c.ModelsDir+c.BundlesDir != "" {
		all = append(all, errors.New("with --config-url the models and bundles are sie-config's: "+
			"give neither --models-dir nor --bundles-dir"))
	}
	return errors.Join(append(all, c.Streams.Validate())...)
}

// lanes returns the configured lanes, and the weights of those that share.
func (c *serveCmd) lanes() ([]bus.Lane, map[bus.Lane]uint64, error) {
	if strings.TrimSpace(c.Lanes) == "" {
		return nil, nil, nil
	}
	l, weights, err := models.ParseLanes(c.Lanes)
	if err != nil {
		return nil, nil, fmt.Errorf("SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES: %w", err)
	}
	return l, weights, nil
}

// aliases returns the model names that stand for others.
func (c *serveCmd) aliases() (alias.Table, error) {
	if strings.TrimSpace(c.Aliases) == "" {
		return nil, nil
	}
	t, err := alias.Parse(c.Aliases)
	if err != nil {
		return nil, fmt.Errorf("SIE_GATEWAY_MODEL_ALIASES: %w", err)
	}
	return t, nil
}

// times returns the time for an answer, and that after which the queue gives up so that it can say
// why within the former.
func (c *serveCmd) times() (answer, queued time.Duration) {
	answer = c.RequestTimeout
	if c.RequestSeconds > 0 {
		answer = time.Duration(c.RequestSeconds * float64(time.Second))
	}
	return answer, max(answer-2*time.Second, answer/2)
}

// unread returns the variables of the environment that begin with SIE_GATEWAY_ and that no flag
// reads: a setting without effect has a wrong name.
func unread(environ []string, flags []*kong.Flag) (out []string) {
	read := map[string]bool{}
	for _, f := range flags {
		for _, name := range f.Envs {
			read[name] = true
		}
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "SIE_GATEWAY_") && !read[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Run serves until a signal, or until the listener fails.
func (c *serveCmd) Run(k *kong.Context) error {
	log := c.Logger(os.Stderr)
	for _, name := range unread(os.Environ(), k.Flags()) {
		log.Warn("a variable has no effect: sie-gateway does not know it", "variable", name)
	}
	heap.GiveRoom()
	g, err := c.open(log)
	if err != nil {
		return err
	}
	defer g.close()
	signals, cancel := sie.UntilSignal()
	defer cancel()
	return g.run(signals)
}

// running is a gateway with everything that was opened for it.
type running struct {
	log      *slog.Logger
	server   *server.Server
	queue    *queue.Queue
	config   *models.Bootstrap // nil: models come from files
	series   *prometheus.Registry
	workers  *fleet.Fleet
	quotas   *quota.Exchange // nil: no tenant may have a quota
	listener net.Listener
	delay    time.Duration // between a signal and the drain
	drain    time.Duration // for running requests to finish

	opened []func() // what ends what was opened, the oldest first
}

func (g *running) closes(f func()) { g.opened = append(g.opened, f) }

// close closes everything that was opened, the newest first.
func (g *running) close() {
	for i := len(g.opened) - 1; i >= 0; i-- {
		g.opened[i]()
	}
	g.opened = nil
}

// open opens everything that the flags ask for. The broker may be away. The caller closes it.
func (c *serveCmd) open(log *slog.Logger) (g *running, err error) {
	secure, err := c.Secure(log)
	if err != nil {
		return nil, err
	}
	lanes, weights, err := c.lanes()
	if err != nil {
		return nil, err
	}
	workers, series := fleet.New(log), obs.NewRegistry()
	opened := &running{log: log, series: series, workers: workers, delay: c.DrainDelay, drain: c.DrainTimeout}
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	var registry *models.Registry
	keeper := pools.New(pools.Options{Lanes: lanes, Limits: c.PoolLimits, Fleet: workers.Snapshot,
		Metrics: series, Log: log,
		Models: func(id string) (string, bool) {
			m, err := registry.Find(id)
			if err != nil {
				return "", false
			}
			return m.Entry.ID, true
		}})
	registry = models.New(models.Options{Lanes: lanes, Weights: weights, Fleet: workers,
		Pools: keeper.Lanes})
	if secure.Access != nil {
		series.MustRegister(secure.Access)
	}
	background, stop := context.WithCancel(context.Background())
	opened.closes(stop)
	if opened.config, err = c.fill(background, registry, log); err != nil {
		return nil, err
	}
	answer, queued := c.times()
	qo := queue.Options{Router: uuid.NewString(), URL: c.URL, Streams: c.Streams, Metrics: series, Log: log,
		Timeout: queued, MaxWait: c.MaxQueueWait, Fair: secure.Access.Several(),
		MaxHolds: c.MaxHolds, MaxHoldBytes: c.MaxHoldBytes}
	if qo.Aliases, err = c.aliases(); err != nil {
		return nil, err
	}
	if c.MaxQueueWait == 0 {
		qo.MaxWait = -1
	}
	if c.Payloads != "" {
		if qo.Store, err = payload.Open(c.Payloads); err != nil {
			return nil, fmt.Errorf("--payload-store: %w", err)
		}
	}
	telemetry, err := c.Telemetry(background, "sie-gateway", build.Version, series, log)
	if err != nil {
		return nil, err
	}
	so := server.Options{
		Options: c.Server(secure, &c.Log, log), Limits: c.Requests(), DefaultModels: c.Default,
		Fleet: workers.Snapshot, Config: registry.Config, Lanes: lanes, Pools: keeper, Registry: series,
		MaxWatchers: c.MaxWatchers, OpenStatus: c.OpenStatus,
		Missing: func() string { return missing(workers, registry) },
	}
	if opened.config != nil {
		so.ConfigURL, so.Changed = opened.config.URL(), opened.config.Ask
		opened.config.Register(series)
	}
	so.Gate = admit.New(admit.Options{MaxHeldBytes: c.MaxHeldBytes, Timeout: answer})
	if telemetry != nil {
		so.Tracer, qo.Tracer = telemetry.Tracer, telemetry.Tracer
		opened.closes(func() { closeTelemetry(telemetry, log) })
	}
	if opened.queue, err = queue.New(qo); err != nil {
		return nil, err
	}
	opened.closes(opened.queue.Close)
	wanted := demand.New(demand.Options{Router: qo.Router, Lanes: lanes, Fleet: workers.Snapshot,
		Pools: keeper, Metrics: series})
	so.Backend = queue.NewBackend(opened.queue, registry, workers, wanted)
	so.Wanted, so.Depths, so.Queues = wanted.Lanes, wanted.Depths, waiting(opened.queue)
	if opened.server, err = server.New(so); err != nil {
		return nil, err
	}
	if secure.Access.Quotas() {
		opened.quotas = quota.New(quota.Options{Router: qo.Router, Access: secure.Access, Metrics: series,
			Log: log})
	}
	if err := c.connect(background, opened, workers, keeper, wanted, log); err != nil {
		return nil, err
	}
	if opened.listener, err = c.listen(secure); err != nil {
		return nil, errors.Join(err, opened.server.Shutdown(background))
	}
	metrics, closeMetrics, err := c.Metrics.Serve(c.Host, series, opened.server.Probes(), log)
	if err != nil {
		return nil, errors.Join(err, opened.listener.Close(), opened.server.Shutdown(background))
	}
	opened.closes(closeMetrics)
	log.Info("sie-gateway", "version", build.Version, "commit", build.Commit,
		"address", opened.listener.Addr().String(), "router", qo.Router, "lanes", len(lanes),
		"api_keys", secure.Access != nil, "tls", secure.TLS != nil, "payload_store", c.Payloads != "",
		"metrics", metrics)
	return opened, nil
}

// waiting returns what tells the server of the work of a queue.
func waiting(q *queue.Queue) func() []server.Waiting {
	return func() (out []server.Waiting) {
		for _, s := range q.States() {
			out = append(out, server.Waiting{Lane: s.Home, Model: s.Model, Untaken: s.Untaken,
				Unanswered: s.Unanswered, Rate: s.Rate})
		}
		return out
	}
}

// missing returns what a gateway needs before its first request.
func missing(workers *fleet.Fleet, registry *models.Registry) string {
	f := workers.Snapshot()
	switch {
	case !f.Connected:
		return "NATS is not connected"
	case !f.Settled && len(f.Lanes) == 0:
		return "the workers are not known yet"
	case registry.Config() == nil:
		return "the models are not known yet"
	}
	return ""
}

// fill gives the registry its models: from files, or from sie-config for as long as ctx lasts.
// That it then returns.
func (c *serveCmd) fill(
	ctx context.Context, registry *models.Registry, log *slog.Logger,
) (*models.Bootstrap, error) {
	if c.Config != "" {
		b, err := models.NewBootstrap(models.BootstrapOptions{URL: c.Config, Token: c.ConfigToken, Log: log},
			registry)
		if err == nil {
			go b.Run(ctx)
		}
		return b, err
	}
	cat, err := catalog.Builtin()
	if c.ModelsDir != "" {
		cat, err = catalog.LoadDir(c.ModelsDir)
	}
	if err != nil {
		return nil, err
	}
	bundles, err := catalog.BuiltinBundles()
	if c.BundlesDir != "" {
		bundles, err = catalog.LoadBundlesDir(c.BundlesDir)
	}
	if err != nil {
		return nil, err
	}
	registry.Set(cat, bundles, models.Version{})
	return nil, nil
}

// connect connects to the broker in the background, and tells those who depend on it.
func (c *serveCmd) connect(
	ctx context.Context, g *running, workers *fleet.Fleet, keeper *pools.Keeper, wanted *demand.Tracker,
	log *slog.Logger,
) error {
	conn, err := bus.Connect(bus.Options{
		URL: c.NATS, Name: "sie-gateway", Access: c.Access,
		Inboxes: bus.GatewayInboxes, Log: log,
		Connected: func() {
			workers.Connected()
			g.queue.Connected()
			keeper.Connected()
			g.server.Look()
			if g.quotas != nil {
				g.quotas.Connected()
			}
		},
		Disconnected: func() {
			workers.Disconnected()
			g.queue.Disconnected()
			if g.quotas != nil {
				g.quotas.Disconnected()
			}
		},
	})
	if err != nil {
		return err
	}
	g.closes(conn.Close)
	g.closes(func() { flush(conn) })
	go workers.Run(ctx)
	if _, err := workers.Subscribe(conn); err != nil {
		return fmt.Errorf("subscribe the heartbeats of workers: %w", err)
	}
	if g.config != nil {
		if _, err := g.config.Listen(conn, c.Trusted); err != nil {
			return fmt.Errorf("subscribe the changes of models: %w", err)
		}
	}
	store, err := lease.NewStore(conn, c.Streams)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if err := wanted.Subscribe(conn); err != nil {
		return fmt.Errorf("subscribe the heartbeats of gateways: %w", err)
	}
	go wanted.Watch(ctx, js)
	if g.quotas != nil {
		if err := g.quotas.Subscribe(conn); err != nil {
			return fmt.Errorf("subscribe the quotas: %w", err)
		}
		g.until(ctx, g.quotas.Run)
	}
	g.until(ctx, func(ctx context.Context) {
		if err := keeper.Run(ctx, store); err != nil {
			log.Error("the pools are not kept any more", "error", err)
		}
	})
	return g.queue.Start(conn)
}

// until runs f in the background until the gateway is closed, which waits for it.
func (g *running) until(ctx context.Context, f func(ctx context.Context)) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	g.closes(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		f(ctx)
	}()
}

// flush sends what the last requests left, for at most a second.
func flush(c *nats.Conn) {
	if c.IsConnected() {
		_ = c.FlushTimeout(time.Second)
	}
}

func (c *serveCmd) listen(s sie.Secured) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: is another server on port %d? Choose one with --port", err, c.Port)
		}
		return nil, err
	}
	if s.TLS != nil {
		l = tls.NewListener(l, s.TLS)
	}
	return l, nil
}

// run serves until stop ends or the listener fails. At the end it is not ready at once, serves on
// for the delay, and then drains.
func (g *running) run(stop context.Context) error {
	served := make(chan error, 1)
	go func() { served <- g.server.Serve(g.listener) }()
	var failed error
	select {
	case failed = <-served:
	case <-stop.Done():
		g.log.Info("shutting down: not ready any more; a second signal stops at once",
			"serves_on_for", g.delay, "then_drains_for_at_most", g.drain)
		g.server.Retire()
		g.queue.Drain()
		wait := time.NewTimer(g.delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case failed = <-served:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.drain)
	defer cancel()
	return errors.Join(failed, g.server.Shutdown(ctx))
}

// telemetryTime bounds sending what waits for the collector.
const telemetryTime = 5 * time.Second

func closeTelemetry(t *obs.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), telemetryTime)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("telemetry", "error", err)
	}
}
