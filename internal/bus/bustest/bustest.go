// Package bustest starts real NATS servers for tests, in this process.
//
// Entry points: Start, and the Server that it returns. Only tests use it. Tests that must see a
// process die start one (sie-gateway nats).
package bustest

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// startTime bounds the start of a server.
const startTime = 20 * time.Second

// Server is a NATS server with JetStream in memory. Its methods belong to the test's goroutine.
type Server struct {
	URL string

	t       *testing.T
	options server.Options
	running *server.Server
}

// Start starts a server on a free port, which is stopped when the test ends. change may alter its
// options; nil changes nothing.
func Start(t *testing.T, change func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxMemory: 1 << 30, NoLog: true, NoSigs: true, MaxPayload: 1 << 20,
	}}
	if change != nil {
		change(&s.options)
	}
	s.run()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) run() {
	s.t.Helper()
	o := s.options
	running, err := server.NewServer(&o)
	if err != nil {
		s.t.Fatal(err)
	}
	running.Start()
	if !running.ReadyForConnections(startTime) {
		s.t.Fatalf("the NATS server did not start in %v", startTime)
	}
	s.running, s.URL = running, running.ClientURL()
}

// Stop stops the server. What it had in memory is lost.
func (s *Server) Stop() {
	if s.running != nil {
		s.running.Shutdown()
		s.running.WaitForShutdown()
		s.running = nil
	}
}

// Restart starts the server again on the port that it had, after Stop.
func (s *Server) Restart() {
	s.t.Helper()
	addr, err := nats.Connect(s.URL, nats.RetryOnFailedConnect(false))
	if err == nil {
		addr.Close()
		s.t.Fatal("another server answers on the port")
	}
	s.options.Port = portOf(s.t, s.URL)
	s.run()
}

// Change alters the options of a server that is stopped.
func (s *Server) Change(change func(*server.Options)) { change(&s.options) }

// Connections returns how many connections were made to the server, refused ones included.
func (s *Server) Connections() uint64 {
	s.t.Helper()
	v, err := s.running.Varz(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return v.TotalConnections
}

// Connect returns a connection with the options of a component, closed when the test ends.
func (s *Server) Connect(inboxes string) *nats.Conn {
	s.t.Helper()
	return s.connect(s.URL, inboxes)
}

func (s *Server) connect(url, inboxes string) *nats.Conn {
	s.t.Helper()
	c, err := bus.Connect(bus.Options{
		URL: url, Name: s.t.Name(), Inboxes: inboxes, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}
