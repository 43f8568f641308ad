package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/worker"
)

// Options of a server. Zero fields take the defaults in brackets.
type Options struct {
	Limits         api.Limits    // bounds on a request
	MaxHeldBytes   int64         // request bodies in memory together [1 GiB]
	MaxConns       int           // open connections [4,096]; more are refused by the operating system's backlog
	RequestTimeout time.Duration // for an answer [140 s: below the SDKs' 150 s, after which they do not retry]
	MachineProfile string        // what X-SIE-MACHINE-PROFILE must name; "" when there is none
	Name           string        // of this worker in /ws/status
	Pool, Bundle   string
	BundleHash     string
	Log            *slog.Logger // [slog.Default()]
	Metrics        *obs.Metrics // required
}

func (o *Options) setDefaults() {
	if o.MaxHeldBytes == 0 {
		o.MaxHeldBytes = 1 << 30
	}
	if o.MaxConns == 0 {
		o.MaxConns = 4096
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 140 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

const (
	// headTime bounds reading a request's head, keepAlive the pause between requests: SDKs keep idle connections for 90 s.
	headTime  = 30 * time.Second
	keepAlive = 120 * time.Second
	// writeTime bounds sending an answer to a slow reader.
	writeTime = 2 * time.Minute
	headBytes = 64 << 10
)

// Server is one HTTP front. Its methods are safe for concurrent use.
type Server struct {
	opt      Options
	worker   *worker.Worker
	http     *fasthttp.Server
	hangups  *hangups
	bodies   bodies
	started  time.Time
	ready    atomic.Bool
	draining atomic.Bool
	quit     chan struct{} // closed by Shutdown: ends the status sockets
}

var errClientGone = errors.New("the client closed the connection")

// New returns a server in front of w that is not ready yet.
func New(w *worker.Worker, opt Options) (*Server, error) {
	opt.setDefaults()
	h, err := newHangups()
	if err != nil {
		return nil, fmt.Errorf("server: watch for hang-ups: %w", err)
	}
	s := &Server{opt: opt, worker: w, hangups: h, started: time.Now(), quit: make(chan struct{}),
		bodies: bodies{maxOne: bodyLimit(opt.Limits), maxHeld: opt.MaxHeldBytes}}
	s.http = &fasthttp.Server{
		Name:                          "sie-server/" + build.Version,
		Handler:                       s.handle,
		ErrorHandler:                  s.badHead,
		StreamRequestBody:             true,
		MaxRequestBodySize:            inlineBody,
		ReadBufferSize:                headBytes,
		ReadTimeout:                   headTime,
		WriteTimeout:                  writeTime,
		IdleTimeout:                   keepAlive,
		Concurrency:                   opt.MaxConns,
		TCPKeepalive:                  true,
		NoDefaultDate:                 true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: false,
		CloseOnShutdown:               true,
		Logger:                        quiet{opt.Log},
	}
	return s, nil
}

// inlineBody is how much of a body fasthttp reads before it calls the handler; the rest is streamed.
const inlineBody = 64 << 10

func bodyLimit(l api.Limits) int64 {
	if n := l.BodyLimit(); n >= 0 {
		return int64(n)
	}
	return 1 << 40
}

// Ready says that the models to be preloaded are there: /readyz answers ok from now on.
func (s *Server) Ready() { s.ready.Store(true) }

// Serve answers connections of l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Shutdown refuses new work, waits for running requests until ctx ends, and closes every connection. The worker is the
// caller's to close, afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.draining.Swap(true) {
		return nil
	}
	close(s.quit)
	err := s.http.ShutdownWithContext(ctx)
	s.hangups.close()
	return err
}

// quiet keeps fasthttp's complaints about broken connections at the debug level.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }
