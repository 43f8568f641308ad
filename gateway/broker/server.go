package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a NATS server that has not been started, or runs in Run.
type Server struct {
	nats    *server.Server
	fatal   chan string // what ended the start of the server, at most one
	cluster bool
	file    *File // nil: Options say all
}

// New returns a server after checking its options and ports. It starts nothing.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	err := errors.Join(freePort("--port", o.Host, o.Port),
		freePort("--cluster-port", o.Host, o.ClusterPort), freePort("--http", o.Host, o.Monitor))
	if err != nil {
		return nil, err
	}
	n, err := server.NewServer(o.nats())
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	s := &Server{nats: n, fatal: make(chan string, 1), cluster: o.ClusterName != ""}
	n.SetLogger(logger{o.Log, s.fatal}, false, false)
	return s, nil
}

// Run serves until ctx ends, and returns after an orderly shutdown: a server of a cluster hands
// over what it leads and sends its clients to the others first. It calls ready with the address
// for clients once it takes connections. Run is called once.
func (s *Server) Run(ctx context.Context, ready func(url string)) error {
	s.nats.Start()
	stopped, started := make(chan struct{}), make(chan bool, 1)
	go func() { // ends with the server
		s.nats.WaitForShutdown()
		close(stopped)
	}()
	go func() { started <- s.nats.ReadyForConnections(startTime) }()
	defer func() {
		s.nats.Shutdown()
		<-stopped
	}()
	var look <-chan time.Time
	var seen map[string]stamp
	if s.file != nil {
		seen = s.file.stamps()
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		look = tick.C
	}
	for {
		select {
		case <-look:
			if now := s.file.stamps(); !maps.Equal(now, seen) {
				seen = now
				s.again()
			}
		case ok := <-started:
			if !ok {
				return fmt.Errorf("NATS took no connections within %v", startTime)
			}
			ready(s.nats.ClientURL())
		case why := <-s.fatal:
			return fmt.Errorf("NATS: %s", why)
		case <-stopped:
			return errors.New("NATS ended by itself; its last messages say why")
		case <-ctx.Done():
			if s.cluster {
				s.nats.LameDuckShutdown()
			}
			return nil
		}
	}
}

// logger passes the messages of the NATS server on.
type logger struct {
	log   *slog.Logger
	fatal chan<- string
}

func (l logger) Noticef(format string, args ...any) { l.log.Info(fmt.Sprintf(format, args...)) }
func (l logger) Warnf(format string, args ...any)   { l.log.Warn(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any)  { l.log.Error(fmt.Sprintf(format, args...)) }
func (l logger) Debugf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l logger) Tracef(string, ...any)              {} // tracing shows payloads

// Fatalf takes a message after which the NATS server does not serve, and expects the process to
// end. Run ends with the first of them.
func (l logger) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, args...):
	default:
	}
}
