package ipcclient

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/ipc"
)

// conn is one connection. Frames leave in the order of start.
type conn struct {
	socket net.Conn
	log    *slog.Logger
	count  func(method, result string, took time.Duration)
	wake   chan struct{} // has a value when there are frames to send
	ended  chan struct{} // closed by end

	mu     sync.Mutex
	over   bool
	calls  map[string]*call // at most maxCalls
	frames [][]byte         // at most maxUnsent bytes
	unsent int

	transfers map[string]*transfer // of the reader alone; at most maxChunked bytes together
	chunked   uint64
}

// call is one that runs.
type call struct {
	method  string
	begun   time.Time
	outcome func(ipc.Outcome)
	done    func(*ipc.Response, error)
}

// transfer is a response in chunks that is not complete.
type transfer struct {
	digest []byte
	count  uint32
	next   uint32
	total  uint64
	data   []byte
}

func newConn(socket net.Conn, log *slog.Logger, count func(string, string, time.Duration)) *conn {
	if count == nil {
		count = func(string, string, time.Duration) {}
	}
	return &conn{
		socket: socket, log: log, count: count, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		calls: map[string]*call{}, transfers: map[string]*transfer{},
	}
}

// start queues a call. It never waits for the socket.
func (k *conn) start(
	id, method string, body Message, outcome func(ipc.Outcome), done func(*ipc.Response, error),
) error {
	raw, err := body.MarshalMsg(nil)
	if err != nil {
		return fmt.Errorf("ipc: %s: %w", method, err)
	}
	frame, err := ipc.AppendFrame(nil, &ipc.Request{
		Version: ipc.Version, Method: method, RequestID: id, Body: raw, AcceptsChunks: true,
		AcceptsOutcomes: outcome != nil,
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over:
		return ErrAway
	case len(k.calls) >= maxCalls || k.unsent+len(frame) > maxUnsent:
		return ErrBusy
	}
	k.calls[id] = &call{method, time.Now(), outcome, done}
	k.frames, k.unsent = append(k.frames, frame), k.unsent+len(frame)
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// write sends frames until the connection ends.
func (k *conn) write() {
	for {
		k.mu.Lock()
		frames := net.Buffers(k.frames)
		k.frames = nil
		k.mu.Unlock()
		n, err := frames.WriteTo(k.socket)
		k.mu.Lock()
		k.unsent -= int(n)
		k.mu.Unlock()
		if err != nil {
			k.close()
			return
		}
		select {
		case <-k.wake:
		case <-k.ended:
			return
		}
	}
}

// read handles frames until the connection ends, and returns why.
func (k *conn) read() error {
	defer k.close()
	r, buf := bufio.NewReaderSize(k.socket, 64<<10), []byte(nil)
	for {
		var err error
		if buf, err = ipc.ReadFrame(r, buf); err != nil {
			return err
		}
		if err := k.frame(buf); err != nil {
			return err
		}
		if cap(buf) > keepBuffer {
			buf = nil
		}
	}
}

// frame handles one frame. Its error ends the connection: a server that breaks the protocol cannot
// be trusted with the frames after it either.
func (k *conn) frame(b []byte) error {
	kind, _, _ := msgp.ReadStringZC(msgp.Locate("kind", b))
	if string(kind) == ipc.KindChunk {
		var c ipc.Chunk
		if _, err := c.UnmarshalMsg(b); err != nil {
			return fmt.Errorf("ipc: a chunk: %w", err)
		}
		whole, err := k.chunk(&c)
		if err != nil || whole == nil {
			return err
		}
		b = whole
	}
	var r ipc.Response
	if _, err := r.UnmarshalMsg(b); err != nil {
		return fmt.Errorf("ipc: a response: %w", err)
	}
	return k.response(&r)
}

func (k *conn) response(r *ipc.Response) error {
	if r.Version != ipc.Version {
		return fmt.Errorf("ipc: the server speaks version %d; this sidecar version %d",
			r.Version, ipc.Version)
	}
	k.mu.Lock()
	c := k.calls[r.RequestID]
	if c != nil && r.Kind != ipc.KindOutcome {
		delete(k.calls, r.RequestID)
	}
	k.mu.Unlock()
	switch {
	case c == nil && r.RequestID == "" && !r.OK:
		return fmt.Errorf("ipc: the server refused a frame: %s", r.Error)
	case c == nil:
		return fmt.Errorf("ipc: a response to no call, request_id %.40q", r.RequestID)
	case r.Kind == ipc.KindOutcome:
		if c.outcome == nil {
			return fmt.Errorf("ipc: an outcome of %s, which asked for none", c.method)
		}
		var o ipc.Outcome
		if _, err := o.UnmarshalMsg(r.Body); err != nil {
			return fmt.Errorf("ipc: an outcome: %w", err)
		}
		c.outcome(o)
	case !r.OK:
		k.count(c.method, "error", time.Since(c.begun))
		c.done(nil, failure(r))
	default:
		k.count(c.method, "ok", time.Since(c.begun))
		c.done(r, nil)
	}
	return nil
}

// chunk adds a chunk to its transfer and returns the whole response with the last.
func (k *conn) chunk(c *ipc.Chunk) ([]byte, error) {
	t := k.transfers[c.RequestID]
	if t == nil {
		if c.TotalBytes > ipc.MaxTransfer || k.chunked+c.TotalBytes > maxChunked || c.Count == 0 {
			return nil, fmt.Errorf("ipc: a response of %d bytes in %d chunks; at most %d bytes are read",
				c.TotalBytes, c.Count, ipc.MaxTransfer)
		}
		t = &transfer{digest: c.Digest, count: c.Count, total: c.TotalBytes}
		k.transfers[c.RequestID] = t
		k.chunked += t.total
	}
	if c.Index != t.next || c.Count != t.count || c.TotalBytes != t.total ||
		!bytes.Equal(c.Digest, t.digest) || uint64(len(t.data)+len(c.Payload)) > t.total {
		return nil, fmt.Errorf("ipc: chunk %d of %d does not belong to its response", c.Index, c.Count)
	}
	t.data = append(t.data, c.Payload...)
	if t.next++; t.next < t.count {
		return nil, nil
	}
	delete(k.transfers, c.RequestID)
	k.chunked -= t.total
	if sum := sha256.Sum256(t.data); uint64(len(t.data)) != t.total || !bytes.Equal(sum[:], t.digest) {
		return nil, fmt.Errorf("ipc: a response in %d chunks has another digest than announced", t.count)
	}
	return t.data, nil
}

// close closes the socket, which ends read.
func (k *conn) close() { k.socket.Close() }

// end ends every call that runs with ErrLost.
func (k *conn) end() {
	k.mu.Lock()
	calls := k.calls
	k.over, k.calls, k.frames = true, nil, nil
	k.mu.Unlock()
	close(k.ended)
	k.close()
	for _, c := range calls {
		k.count(c.method, "lost", time.Since(c.begun))
		c.done(nil, ErrLost)
	}
}
