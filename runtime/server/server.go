package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"go.opentelemetry.io/otel/attribute"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/runtime/service"
)

// Options configures a Server. Zero fields take the defaults in brackets, or those of
// httpd.Options.
type Options struct {
	httpd.Options // Gate is the service's; MaxBodyBytes and SpanAttributes follow from the fields below

	Limits         api.Limits // bounds on a request
	DefaultModels  []string   // ids, for routes that name no model: the first one that fits the task answers
	MachineProfile string     // what X-SIE-MACHINE-PROFILE must name; "": there is none
	Name           string     // of this worker, in /ws/status
	Pool, Bundle   string
	BundleHash     string
	// Beating reports whether the sidecar of this server is alive. /readyz asks for it [always].
	Beating func() bool

	MaxWatchers    int           // open status sockets [256]
	StatusInterval time.Duration // between two status frames [200 ms]
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
	return errors.Join(all...)
}

// Server is the HTTP front of a service. Its methods are safe for concurrent use.
type Server struct {
	opt     Options
	http    *httpd.Server
	service *service.Service
	backend *backend                // of the inference routes
	metrics fasthttp.RequestHandler // serves /metrics
	// serves /ws/status
	watch   *httpd.Feed
	started time.Time
	ready   atomic.Bool
	bundle  atomic.Pointer[string] // set by SetBundleHash; nil: Options.BundleHash
}

// SetBundleHash replaces Options.BundleHash after the catalog changed. A gateway routes by this
// hash.
func (s *Server) SetBundleHash(hash string) { s.bundle.Store(&hash) }

func (s *Server) bundleHash() string {
	if h := s.bundle.Load(); h != nil {
		return *h
	}
	return s.opt.BundleHash
}

// New returns a server for the models of w. It is not ready before Ready.
func New(w *service.Service, opt Options) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	opt.Product, opt.Unrouted, opt.Gate = "sie-server/"+build.Version, inference.Unrouted, w.Gate()
	opt.MaxBodyBytes = int64(opt.Limits.BodyLimit())
	opt.SpanAttributes = []attribute.KeyValue{attribute.String("machine_profile", opt.MachineProfile)}
	s := &Server{
		opt:     opt,
		service: w,
		started: time.Now(),
		backend: newBackend(w, opt.MachineProfile),
		metrics: fasthttpadaptor.NewFastHTTPHandler(
			promhttp.HandlerFor(w.Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})),
	}
	gpu := strings.HasPrefix(w.DeviceName(), "cuda")
	routes := inference.New(inference.Options{
		Backend:   s.backend,
		Gate:      w.Gate(),
		Log:       opt.Log,
		Limits:    opt.Limits,
		Defaults:  opt.DefaultModels,
		Precision: w.Precision(),
		GPU:       func() bool { return gpu },
		MaxQueued: w.QueueLimit(),
	})
	var err error
	if s.http, err = httpd.New(opt.Options, s.routes(routes)); err != nil {
		return nil, err
	}
	s.watch = s.http.NewFeed(httpd.FeedOptions{Interval: opt.StatusInterval, WriteTimeout: opt.StatusTimeout,
		MaxWatchers: opt.MaxWatchers, Frame: s.statusFrame})
	return s, nil
}

// Ready marks the preloaded models as loaded. From now on /readyz answers ok.
func (s *Server) Ready() { s.ready.Store(true) }

// Started reports whether Ready was called.
func (s *Server) Started() bool { return s.ready.Load() }

func (s *Server) isReady() bool {
	return s.ready.Load() && !s.http.Draining() && !s.service.Lost() &&
		(s.opt.Beating == nil || s.opt.Beating())
}

// Serve answers the connections of l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Shutdown drains the service's Gate and closes the server, as httpd.Server.Shutdown does. The
// caller owns the service and may close it afterwards.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }
