package bustest

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Slow is a network to a server that holds up what it is told to. Connect belongs to the test's
// goroutine; the other methods may be called from any.
type Slow struct {
	URL string

	server            *Server
	requests, answers atomic.Int64 // until when they are held up, in nanoseconds of Unix time
}

// Slow returns a network to the server, which ends with the test.
func (s *Server) Slow() *Slow {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	n := &Slow{URL: "nats://" + l.Addr().String(), server: s}
	address := strings.TrimPrefix(s.URL, "nats://")
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				from.Close()
				continue
			}
			go carry(to, from, &n.requests)
			go carry(from, to, &n.answers)
		}
	}()
	return n
}

// Connect returns a connection over the network, as Server.Connect does.
func (n *Slow) Connect(inboxes string) *nats.Conn { return n.server.connect(n.URL, inboxes) }

// HoldRequests holds up what is sent to the server from now on; all of it comes there when so much
// time has passed.
func (n *Slow) HoldRequests(late time.Duration) { n.requests.Store(time.Now().Add(late).UnixNano()) }

// HoldAnswers does the same with what the server sends.
func (n *Slow) HoldAnswers(late time.Duration) { n.answers.Store(time.Now().Add(late).UnixNano()) }

// carry copies what comes, and ends both connections with the first that ends.
func carry(to io.WriteCloser, from io.ReadCloser, until *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	some := make([]byte, 1<<16)
	for {
		n, err := from.Read(some)
		time.Sleep(time.Until(time.Unix(0, until.Load())))
		if _, failed := to.Write(some[:n]); failed != nil || err != nil {
			return
		}
	}
}
