package ipc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/accept"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/service"
)

// Server serves the connections of one socket. Its methods are safe for concurrent use.
type Server struct {
	opt     Options
	service *service.Service
	gate    *admit.Gate
	epoch   string                    // random, so that a sidecar can tell that the process is another one
	beat    atomic.Pointer[time.Time] // when the last Ping came; nil: none did
	slots   chan struct{}             // one for each slice that runs
	crew    *crew

	ctx  context.Context // of all connections
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	conns   map[*conn]struct{}
	batches map[*batch]struct{}
	slices  map[string][]*slice // by work item id: those that run
}

// New returns a Server; Serve runs it.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	s := &Server{
		opt: o, service: o.Service, gate: o.Service.Gate(), epoch: api.NewID(),
		slots: make(chan struct{}, o.MaxSlices), conns: make(map[*conn]struct{}),
		batches: make(map[*batch]struct{}), slices: make(map[string][]*slice),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.crew = newCrew(s.ctx, &s.done)
	return s, nil
}

// Serve answers the connections of l until Close or an error of the socket, which it returns.
func (s *Server) Serve(l *Listener) error {
	end := context.AfterFunc(s.ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer end()
	for {
		c, err := accept.Next(l.AcceptUnix, func(err error) {
			s.opt.Log.Warn("ipc: no connection can be accepted now; it is tried again", "error", err)
		})
		switch {
		case s.ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("ipc: %w", err)
		}
		if err := s.open(c); err != nil {
			s.opt.Log.Warn("ipc: a connection was refused", "error", err)
			_ = c.Close()
		}
	}
}

// open begins to serve a connection, unless its peer is another user or there are too many.
func (s *Server) open(c *net.UnixConn) error {
	if err := checkPeer(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.opt.MaxConns {
		return fmt.Errorf("there are %d connections, the most that are served", len(s.conns))
	}
	x := newConn(s, c)
	s.conns[x] = struct{}{}
	s.done.Go(x.serve)
	return nil
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Close ends all connections, which cancels their slices, and waits for them. The service's gate is
// drained before, so that running slices are answered.
func (s *Server) Close() {
	s.stop()
	s.done.Wait()
}

// Beating reports whether a sidecar has sent a Ping within FreshHeartbeat.
func (s *Server) Beating() bool {
	at := s.beat.Load()
	return at != nil && time.Since(*at) < FreshHeartbeat
}
