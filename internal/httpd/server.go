package httpd

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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// Options configures a Server. Zero fields take the defaults in brackets.
type Options struct {
	Product string       // name and version for the header Server [sie]
	Log     *slog.Logger // [slog.Default()]

	Keys        *tenant.Access // nil: requests need no key
	CORSOrigins []string       // origins whose scripts may read answers; "*": all
	AccessLog   bool           // a line for every request
	AuditLog    bool           // a line for every request but those of probes, with who sent it

	Tracer         trace.Tracer         // nil: no spans
	SpanAttributes []attribute.KeyValue // of every span

	// Unrouted returns the answer for a path that no route serves, or nil for a plain 404 or 405.
	Unrouted func(path string) (dialect.RouteKind, *errs.Error)

	// Gate admits work, bounds its time and the bytes in memory, and is drained by Shutdown. Other
	// entrances of the process may use the same one [a new one with defaults].
	Gate *admit.Gate

	MaxBodyBytes int64 // of a request's body [34 MiB]; negative: no limit
	MaxConns     int   // open connections [4,096]; one more gets a 503 and is closed
	// of a request's head [16 KiB]; a buffer of this size lives with every open connection
	MaxHeadBytes int
	HeadTimeout  time.Duration // for a request's head [30 s]
	BodyTimeout  time.Duration // for a whole body [5 min]
	BodyStall    time.Duration // between two pieces of a body [20 s]
	WriteTimeout time.Duration // for sending an answer to a slow reader [2 min]
	KeepAlive    time.Duration // pause between requests [120 s: SDKs keep idle connections for 90 s]

	// UnwantedTime bounds the reading of the body of a refused inference request [30 s]. BriefTime
	// bounds the reading of a body that no route needs: on GET routes, on unknown paths, and
	// without a key [500 ms].
	UnwantedTime, BriefTime time.Duration
	// IdleGrace is how long connections between two requests stay open once a drain has begun [1
	// s]. LastBytes is how long, after the last running request, the server waits for the rest of a
	// request that has begun to arrive [2 s].
	IdleGrace, LastBytes time.Duration
	// WorkerIdle is how long a goroutine waits for its next connection [10 s].
	WorkerIdle time.Duration
}

func (o *Options) setDefaults() {
	o.Product = cmp.Or(o.Product, "sie")
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Gate == nil {
		o.Gate = admit.New(admit.Options{})
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, api.DefaultMaxBodyBytes)
	if o.MaxBodyBytes < 0 {
		o.MaxBodyBytes = 1 << 40
	}
	o.MaxConns, o.MaxHeadBytes = cmp.Or(o.MaxConns, 4096), cmp.Or(o.MaxHeadBytes, 16<<10)
	o.HeadTimeout, o.KeepAlive = cmp.Or(o.HeadTimeout, 30*time.Second), cmp.Or(o.KeepAlive, 120*time.Second)
	o.BodyTimeout, o.BodyStall = cmp.Or(o.BodyTimeout, 5*time.Minute), cmp.Or(o.BodyStall, 20*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 2*time.Minute)
	o.UnwantedTime, o.BriefTime = cmp.Or(o.UnwantedTime, 30*time.Second),
		cmp.Or(o.BriefTime, 500*time.Millisecond)
	o.IdleGrace, o.LastBytes = cmp.Or(o.IdleGrace, time.Second), cmp.Or(o.LastBytes, 2*time.Second)
}

// Validate returns all errors in the options joined, nil for none. Zero fields are defaults and
// never wrong.
func (o *Options) Validate() error {
	var all []error
	for _, x := range []struct {
		name  string
		value int64
	}{
		{"MaxConns", int64(o.MaxConns)}, {"MaxHeadBytes", int64(o.MaxHeadBytes)},
		{"HeadTimeout", int64(o.HeadTimeout)}, {"BodyTimeout", int64(o.BodyTimeout)},
		{"BodyStall", int64(o.BodyStall)}, {"WriteTimeout", int64(o.WriteTimeout)},
		{"KeepAlive", int64(o.KeepAlive)}, {"UnwantedTime", int64(o.UnwantedTime)},
		{"BriefTime", int64(o.BriefTime)}, {"IdleGrace", int64(o.IdleGrace)},
		{"LastBytes", int64(o.LastBytes)}, {"WorkerIdle", int64(o.WorkerIdle)},
	} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", x.name, x.value))
		}
	}
	if o.MaxHeadBytes > 0 && o.MaxHeadBytes < minHeadBytes {
		all = append(all,
			fmt.Errorf("MaxHeadBytes must be at least %d; got %d", minHeadBytes, o.MaxHeadBytes))
	}
	return errors.Join(all...)
}

// minHeadBytes is the smallest bound on a head that common clients can work with.
const minHeadBytes = 1 << 10

// Server is one HTTP server. Its methods are safe for concurrent use.
type Server struct {
	opt     Options
	routes  []Route
	http    *fasthttp.Server
	hangups *hangups
	bodies  bodies
	gate    *admit.Gate // requests within Do; shut by Shutdown, or by another entrance
	conns   conns
	down    atomic.Bool // Shutdown was called
	retired atomic.Bool // Retire was called

	mu        sync.Mutex // guards the fields below
	listeners []net.Listener
	feeds     []*Feed
}

// New returns a server of routes. The first route that matches a request serves it. The server
// accepts nothing before Serve. Call Shutdown even if it never served.
func New(opt Options, routes []Route) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	opt.setDefaults()
	h, err := newHangups(nil)
	if err != nil {
		return nil, fmt.Errorf("httpd: watch for hang-ups: %w", err)
	}
	s := &Server{opt: opt, routes: routes, hangups: h, gate: opt.Gate,
		bodies: bodies{maxOne: opt.MaxBodyBytes, gate: opt.Gate, stall: opt.BodyStall, whole: opt.BodyTimeout,
			drainFor: opt.UnwantedTime, brief: opt.BriefTime}}
	s.http = &fasthttp.Server{
		Name:                         opt.Product,
		Handler:                      s.handle,
		ErrorHandler:                 s.badHead,
		ExpectHandler:                s.expect,
		StreamRequestBody:            true,
		MaxRequestBodySize:           inlineBody,
		ReadBufferSize:               opt.MaxHeadBytes,
		ReadTimeout:                  opt.HeadTimeout,
		WriteTimeout:                 opt.WriteTimeout,
		IdleTimeout:                  opt.KeepAlive,
		HeaderReceived:               s.bodyTimes,
		Concurrency:                  opt.MaxConns + spareConns,
		DisablePreParseMultipartForm: true,
		Logger:                       fasthttpLogger{opt.Log},
		ConnState:                    s.conns.note,
		MaxIdleWorkerDuration:        opt.WorkerIdle,
	}
	return s, nil
}

const (
	// inlineBody is how many bytes of a body fasthttp reads before it calls the handler: the least
	// it allows, because the handler applies the bounds on slow bodies.
	inlineBody = 1
	// spareConns is how many connections more than MaxConns fasthttp allows. The listener keeps to
	// MaxConns, but fasthttp may still count connections that were just closed.
	spareConns = 256
)

// bodyTimes returns the read timeout for the first byte of a body: the same as for any pause in it.
// fasthttp calls it when it has read a head.
func (s *Server) bodyTimes(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: s.bodies.stall}
}

// Load counts the requests, bytes and connections of a server at one moment. Requests and bytes are
// those of the Gate, whichever entrance they came by.
type Load struct {
	Running   int   // admitted requests
	HeldBytes int64 // request bodies and results
	Conns     int   // open connections, feeds left out
	Watches   int   // clients watched for hang-ups
}

// Load returns the server's current load.
func (s *Server) Load() Load {
	return Load{
		Running:   s.gate.Running(),
		HeldBytes: s.gate.Held(),
		Conns:     s.conns.count(),
		Watches:   s.hangups.count(),
	}
}

// Draining reports whether the Gate is shut, so that new work is refused.
func (s *Server) Draining() bool { return s.gate.Draining() }

// Serve answers connections of l until Shutdown. It may be called for several listeners. After
// Shutdown it closes l and returns nil.
func (s *Server) Serve(l net.Listener) error {
	own := &limitedListener{Listener: l, max: s.opt.MaxConns, open: s.conns.count, log: s.opt.Log}
	s.mu.Lock()
	if s.down.Load() { // its closing of the listeners may be over
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners = append(s.listeners, own)
	s.mu.Unlock()
	err := s.http.Serve(own)
	if s.down.Load() && errors.Is(err, net.ErrClosed) {
		return nil // closed before its first connection
	}
	return err
}

// Retire makes every answer the last of its connection, while requests are served as before.
// Clients that keep connections open then connect elsewhere, before Shutdown refuses them.
func (s *Server) Retire() { s.retired.Store(true) }

// Shutdown drains the Gate and closes the server. New work is refused with a 503 that says when to
// retry, while other routes go on and running requests finish. From now on every answer ends its
// connection, and a request that has arrived is still answered.
//
// When all requests have finished, or when ctx ends, Shutdown closes the listeners and every
// connection. Requests that still run then are answered with the same 503, and Shutdown returns an
// error that wraps ctx's. Clients that are slow to send or to read delay it but cause no error.
// Once it has returned nil or ctx's error, no request runs and the handlers' resources may be
// closed. Only the first call has an effect.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.down.Swap(true) {
		return nil
	}
	s.gate.Shut() // before the feeds' last frames, which show it
	s.mu.Lock()
	feeds := s.feeds
	s.mu.Unlock()
	for _, f := range feeds {
		f.stop()
	}
	late := s.gate.Drain(ctx)
	if late != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), admit.LastAnswers)
		defer cancel()
		if s.gate.Running() > 0 { // they do not end, and nothing is left to wait for
			cancel()
		}
	}
	err := s.closeConns(ctx)
	for _, f := range feeds {
		f.wait()
	}
	s.hangups.close()
	return cmp.Or(late, err)
}

// closeConns closes the listeners, lets connections finish their answers until ctx ends, and then
// closes them. Call it once no work runs.
func (s *Server) closeConns(ctx context.Context) error {
	s.mu.Lock()
	for _, l := range s.listeners {
		_ = l.Close() // fasthttp closes it again and returns the error
	}
	s.mu.Unlock()
	now := time.Now()
	s.conns.drain(ctx, s.gate.ShutAt().Add(s.opt.IdleGrace), now.Add(s.opt.LastBytes))
	if n := s.conns.cut(); n > 0 {
		s.opt.Log.Warn("connections closed whose clients did not take their answers in time",
			"connections", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), admit.LastAnswers)
	defer cancel()
	if err := s.http.ShutdownWithContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
