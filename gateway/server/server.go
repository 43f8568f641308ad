package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
)

// Options configures a Server. Zero fields take the defaults in brackets, or those of
// httpd.Options.
type Options struct {
	httpd.Options // Gate is required; Unrouted and MaxBodyBytes follow from the fields below

	Backend       inference.Backend
	Limits        api.Limits // bounds on a request
	DefaultModels []string   // ids, for routes that name no model

	// Fleet returns the workers. It never returns nil.
	Fleet func() *fleet.Snapshot
	// Config returns the configuration, nil as long as there never was one. While nothing changes
	// it returns the same pointer.
	Config func() *models.Config
	// Missing says what the gateway still waits for before its first request, "" for nothing.
	Missing func() string

	ConfigURL string // of sie-config, without a slash at its end; "": there is none
	Changed   func() // called after a change was passed on to sie-config; nil: nothing

	Lanes []bus.Lane // that the operator configured
	// Wanted returns how many workers lanes should have so that what waits can begin, Depths how
	// many slices of all gateways their queues hold, Queues the work of this gateway. nil: nothing
	// is shown of it.
	Wanted func() map[bus.Lane]int
	Depths func() map[bus.Lane]int64
	Queues func() []Waiting

	Pools    *pools.Keeper // of clients' pools
	Registry *prometheus.Registry

	OpenStatus     bool          // /health and the status sockets need no API key
	MaxWatchers    int           // open status sockets [256]
	StatusInterval time.Duration // between two status frames [1 s]
	StatusTimeout  time.Duration // to send one frame to a slow watcher [5 s]
}

// Validate returns everything that is wrong with the options, or nil.
func (o *Options) Validate() error {
	all := []error{o.Options.Validate()}
	for _, x := range []struct {
		name  string
		value int64
	}{
		{"MaxWatchers", int64(o.MaxWatchers)}, {"StatusInterval", int64(o.StatusInterval)},
		{"StatusTimeout", int64(o.StatusTimeout)}, {"Limits.MaxItems", int64(o.Limits.MaxItems)},
		{"Limits.MaxScoreItems", int64(o.Limits.MaxScoreItems)},
		{"Limits.MaxLabels", int64(o.Limits.MaxLabels)},
	} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", x.name, x.value))
		}
	}
	if o.Backend == nil || o.Gate == nil || o.Fleet == nil || o.Config == nil || o.Missing == nil ||
		o.Registry == nil || o.Pools == nil {
		all = append(all, errors.New(
			"the fields Backend, Gate, Fleet, Config, Missing, Pools and Registry are required"))
	}
	return errors.Join(all...)
}

// Server is the HTTP server of a gateway. Its methods are safe for concurrent use.
type Server struct {
	opt     Options
	http    *httpd.Server
	configs configViews
	control *http.Client // to sie-config
	gpus    atomic.Pointer[gpuView]
	rate    rate                    // of answered
	metrics fasthttp.RequestHandler // serves /metrics
	watch   *httpd.Feed             // serves the status sockets
	started time.Time
	ready   atomic.Bool // nothing was missing once
	retired atomic.Bool // Retire was called

	activity activity
}

// New returns a server. It registers its series, and accepts nothing before Serve.
func New(opt Options) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	opt.Product, opt.Unrouted = "sie-gateway/"+build.Version, inference.Unrouted
	opt.MaxBodyBytes = int64(opt.Limits.BodyLimit())
	if opt.StatusInterval == 0 {
		opt.StatusInterval = time.Second
	}
	s := &Server{
		opt:     opt,
		control: newControl(),
		started: time.Now(),
		metrics: fasthttpadaptor.NewFastHTTPHandler(
			promhttp.HandlerFor(opt.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})),
	}
	s.registerGauges(opt.Registry)
	routes := inference.New(inference.Options{
		Backend:   checked{opt.Backend, &s.activity},
		Gate:      opt.Gate,
		Log:       opt.Log,
		Limits:    opt.Limits,
		Defaults:  opt.DefaultModels,
		Precision: "unknown", // it is the workers'
		GPU:       s.hasGPUs,
		Headers:   headers,
	})
	var err error
	if s.http, err = httpd.New(opt.Options, s.routes(routes)); err != nil {
		return nil, err
	}
	s.watch = s.http.NewFeed(httpd.FeedOptions{Interval: opt.StatusInterval, WriteTimeout: opt.StatusTimeout,
		MaxWatchers: opt.MaxWatchers, Frame: s.frame})
	return s, nil
}

// gpuView says whether any live worker of a snapshot has a GPU.
type gpuView struct {
	of  *fleet.Snapshot
	has bool
}

// hasGPUs reports whether any live worker has a GPU. It looks once at each snapshot: requests of
// other APIs ask each.
func (s *Server) hasGPUs() bool {
	f := s.opt.Fleet()
	if v := s.gpus.Load(); v != nil && v.of == f {
		return v.has
	}
	v := &gpuView{of: f, has: slices.ContainsFunc(f.Workers, func(w *fleet.Worker) bool {
		return w.Live && w.Heartbeat.GPUCount > 0
	})}
	s.gpus.Store(v)
	return v.has
}

// Look makes the server ready if nothing is missing. Call it when something that was missing may be
// there; probes call it too. Once ready, only Retire and Shutdown end that: a broker that is away
// must not take all gateways out of service, because they hold its work.
func (s *Server) Look() { s.waits() }

// waits returns what a server that was never ready waits for.
func (s *Server) waits() string {
	if s.ready.Load() {
		return ""
	}
	if missing := s.opt.Missing(); missing != "" {
		return missing
	}
	if !s.ready.Swap(true) {
		s.opt.Log.Info("ready")
	}
	return ""
}

// Serve answers the connections of l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Retire takes the gateway out of service for clients that follow /readyz: it is not ready any
// more, and every answer ends its connection. Requests are served as before until Shutdown.
func (s *Server) Retire() {
	s.retired.Store(true)
	s.http.Retire()
}

// Shutdown drains the Gate and closes the server, as httpd.Server.Shutdown does.
func (s *Server) Shutdown(ctx context.Context) error {
	s.retired.Store(true)
	return s.http.Shutdown(ctx)
}

// Load returns what the server holds.
func (s *Server) Load() httpd.Load { return s.http.Load() }
