package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/worker"
)

// Options of a server. Zero fields take the defaults in brackets.
type Options struct {
	Limits         api.Limits    // bounds on a request
	MaxHeldBytes   int64         // request bodies in memory together [1 GiB]
	MaxConns       int           // open connections [4,096]; one more gets a 503 and is closed
	RequestTimeout time.Duration // for an answer [140 s: below the SDKs' 150 s, after which they do not retry]
	DefaultModels  []string      // ids, for routes that name no model: the first that fits the task answers
	MachineProfile string        // what X-SIE-MACHINE-PROFILE must name; "" when there is none
	Name           string        // of this worker in /ws/status
	Pool, Bundle   string
	BundleHash     string
	Log            *slog.Logger     // [slog.Default()]
	Metrics        *metrics.Metrics // required

	Keys        *Keys        // nil: everybody is served
	CORSOrigins []string     // whose scripts may read answers; "*": all
	AccessLog   bool         // a line for every request
	Tracer      trace.Tracer // nil: no spans

	MaxHeadBytes int           // of a request's head [16 KiB]; a buffer of this size lives with every open connection
	HeadTimeout  time.Duration // for a request's head [30 s]
	BodyTimeout  time.Duration // for a whole body [5 min]
	BodyStall    time.Duration // between two pieces of a body [20 s]
	WriteTimeout time.Duration // for sending an answer to a slow reader [2 min]
	KeepAlive    time.Duration // pause between requests [120 s: SDKs keep idle connections for 90 s]
	MaxWatchers  int           // open status sockets [256]
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
	o.MaxHeadBytes = cmp.Or(o.MaxHeadBytes, headBytes)
	o.HeadTimeout, o.KeepAlive = cmp.Or(o.HeadTimeout, headTime), cmp.Or(o.KeepAlive, keepAlive)
	o.BodyTimeout, o.BodyStall = cmp.Or(o.BodyTimeout, bodyTime), cmp.Or(o.BodyStall, stallTime)
	o.WriteTimeout, o.MaxWatchers = cmp.Or(o.WriteTimeout, writeTime), cmp.Or(o.MaxWatchers, maxWatchers)
}

// The defaults of the bounds in Options.
const (
	headTime  = 30 * time.Second
	keepAlive = 120 * time.Second
	writeTime = 2 * time.Minute
	headBytes = 16 << 10
)

// Server is one HTTP front. Its methods are safe for concurrent use.
type Server struct {
	opt      Options
	worker   *worker.Worker
	tasks    tasks // the worker, for what it does besides encode
	http     *fasthttp.Server
	hangups  *hangups
	bodies   bodies
	full     fullAnswers // what requests get that a full queue cannot take
	watchers *watchers
	started  time.Time
	ready    atomic.Bool
	bundle   atomic.Pointer[string] // SetBundleHash's, over the options'
	gate     *gate                  // inference requests; shut by Shutdown
	conns    conns
	// idleGrace and lastBytes are the constants; shorter in tests.
	idleGrace, lastBytes time.Duration
	work                 context.Context
	abort                context.CancelCauseFunc // ends work: every running request

	listening sync.Mutex // guards listeners
	listeners []net.Listener
}

var errClientGone = errors.New("the client closed the connection")

// SetBundleHash replaces Options.BundleHash when the catalog changed: a gateway sends work by it.
func (s *Server) SetBundleHash(hash string) { s.bundle.Store(&hash) }

func (s *Server) bundleHash() string {
	if h := s.bundle.Load(); h != nil {
		return *h
	}
	return s.opt.BundleHash
}

// New returns a server in front of w that is not ready yet.
func New(w *worker.Worker, opt Options) (*Server, error) {
	opt.setDefaults()
	h, err := newHangups(nil)
	if err != nil {
		return nil, fmt.Errorf("server: watch for hang-ups: %w", err)
	}
	s := &Server{opt: opt, worker: w, hangups: h, started: time.Now(), gate: newGate(), watchers: newWatchers(opt.MaxWatchers),
		full: prepareFull(w.QueueLimit(), w.QueueWait()),
		bodies: bodies{maxOne: bodyLimit(opt.Limits), maxHeld: opt.MaxHeldBytes, stall: opt.BodyStall, whole: opt.BodyTimeout,
			drainFor: drainTime, brief: briefTime}}
	s.tasks, s.idleGrace, s.lastBytes = w, idleGrace, lastBytes
	s.work, s.abort = context.WithCancelCause(context.Background())
	s.http = &fasthttp.Server{
		Name:                          "sie-server/" + build.Version,
		Handler:                       s.handle,
		ErrorHandler:                  s.badHead,
		ExpectHandler:                 s.expect,
		StreamRequestBody:             true,
		MaxRequestBodySize:            inlineBody,
		ReadBufferSize:                opt.MaxHeadBytes,
		ReadTimeout:                   opt.HeadTimeout,
		WriteTimeout:                  opt.WriteTimeout,
		IdleTimeout:                   opt.KeepAlive,
		HeaderReceived:                s.bodyTimes,
		Concurrency:                   opt.MaxConns + spareConns,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: false,
		Logger:                        quiet{opt.Log},
		ConnState:                     s.conns.note,
	}
	return s, nil
}

const (
	// inlineBody is how much of a body fasthttp reads before it calls the handler: as little as it can, since the bounds on
	// a slow body are the handler's.
	inlineBody = 1
	// spareConns is how many connections fasthttp may think open beyond MaxConns, which the listener keeps to: those that
	// were just closed.
	spareConns = 256
)

// bodyTimes is asked by fasthttp when a head was read: the first byte of the body may take as long as any pause in it.
func (s *Server) bodyTimes(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: s.bodies.stall}
}

func bodyLimit(l api.Limits) int64 {
	if n := l.BodyLimit(); n >= 0 {
		return int64(n)
	}
	return 1 << 40
}

// Ready says that the models to be preloaded are there: /readyz answers ok from now on.
func (s *Server) Ready() { s.ready.Store(true) }

// Serve answers connections of l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	own := &capped{Listener: l, max: s.opt.MaxConns, open: s.conns.count}
	s.listening.Lock()
	s.listeners = append(s.listeners, own)
	s.listening.Unlock()
	return s.http.Serve(own)
}

const (
	// lastAnswers is how long requests that were cut short may take to be answered.
	lastAnswers = 5 * time.Second
	// idleGrace is how long after the gate was shut connections are kept open that wait for their next request: it gets a
	// 503 and is the last.
	idleGrace = time.Second
	// lastBytes is how long after the last running request the rest of a request that is still on its way is awaited, so that
	// its sender gets the 503.
	lastBytes = 2 * time.Second
)

// Shutdown drains: new work is refused with a 503 that says when to retry, while health and listings go on and running
// requests finish. Every answer from now on ends its connection, and a request that has arrived is answered. Then, or when
// ctx ends, it closes the listeners and every connection; requests that still run are answered with that 503 too, and make
// an error of ctx's. Clients that are slow to send or to read, or that do neither, hold it up but are no error. No request
// runs once it has returned nil or ctx's error; the worker, which is the caller's, may then be closed. Only the first call
// does something.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.gate.shut() {
		return nil
	}
	s.watchers.stop()
	var late error
	select {
	case <-s.gate.idle:
	case <-ctx.Done():
		late = fmt.Errorf("server: %d requests still ran when the time for draining was up; they were answered with a retryable 503: %w",
			s.gate.count(), ctx.Err())
		s.abort(errs.ShuttingDown())
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), lastAnswers)
		defer cancel()
		select {
		case <-s.gate.idle:
		case <-ctx.Done():
		}
	}
	err := s.closeConns(ctx)
	s.watchers.wait()
	s.hangups.close()
	s.abort(nil)
	return cmp.Or(late, err)
}

// closeConns closes the listeners, lets connections finish their answers while ctx lasts, and closes them. It is to be called
// once no inference runs.
func (s *Server) closeConns(ctx context.Context) error {
	s.listening.Lock()
	for _, l := range s.listeners {
		_ = l.Close() // fasthttp does it again and says why it failed
	}
	s.listening.Unlock()
	now := time.Now()
	s.conns.wind(ctx, s.gate.shutAt.Add(s.idleGrace), now.Add(s.lastBytes))
	if n := s.conns.cut(); n > 0 {
		s.opt.Log.Warn("connections closed whose clients did not take their answers in time", "connections", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if err := s.http.ShutdownWithContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
