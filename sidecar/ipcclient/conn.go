package ipcclient

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

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
	most   uint64 // bytes of a request in chunks that the server takes; 0: none

	mostBack  int            // bytes of a response in chunks that are taken
	transfers *ipc.Transfers // of the reader alone
}

// call is one that runs.
type call struct {
	method  string
	begun   time.Time
	outcome func(ipc.Outcome)
	done    func(*ipc.Response, error)
}

func newConn(
	socket net.Conn, mostBack int, log *slog.Logger, count func(string, string, time.Duration),
) *conn {
	if count == nil {
		count = func(string, string, time.Duration) {}
	}
	return &conn{
		socket: socket, log: log, count: count, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		calls: map[string]*call{}, mostBack: mostBack, transfers: ipc.NewTransfers(mostBack, maxChunked),
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
	r := &ipc.Request{
		Version: ipc.Version, Method: method, RequestID: id, Body: raw, AcceptsChunks: true,
		MostBytes: uint64(k.mostBack), AcceptsOutcomes: outcome != nil,
	}
	pieces, size, err := k.pieces(r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over:
		return ErrAway
	case len(k.calls) >= maxCalls || k.unsent+size > maxUnsent:
		return ErrBusy
	}
	k.calls[id] = &call{method, time.Now(), outcome, done}
	k.frames, k.unsent = append(k.frames, pieces...), k.unsent+size
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// pieces returns a request as a frame, or as those of its chunks if the server takes them. An
// *ipc.ErrFrame is that of a request for which neither will do.
func (k *conn) pieces(r *ipc.Request) (pieces [][]byte, size int, err error) {
	var tooLarge *ipc.ErrFrame
	frame, err := ipc.AppendFrame(nil, r)
	if !errors.As(err, &tooLarge) {
		return [][]byte{frame}, len(frame), err
	}
	k.mu.Lock()
	most := k.most
	k.mu.Unlock()
	if uint64(tooLarge.Bytes) > most {
		return nil, 0, err
	}
	data, err := r.MarshalMsg(nil)
	if err != nil {
		return nil, 0, fmt.Errorf("ipc: %s: %w", r.Method, err)
	}
	for _, p := range ipc.Chunks(ipc.KindRequestChunk, r.RequestID, data) {
		pieces, size = append(pieces, p), size+len(p)
	}
	return pieces, size, nil
}

// serverTakes notes the largest request in chunks that the server takes.
func (k *conn) serverTakes(bytes uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.most = min(bytes, ipc.MaxTransfer)
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
	if !ipc.IsChunk(b, ipc.KindChunk) {
		var r ipc.Response
		if _, err := r.UnmarshalMsg(b); err != nil {
			return fmt.Errorf("ipc: a response: %w", err)
		}
		return k.response(&r)
	}
	var c ipc.Chunk
	if _, err := c.UnmarshalMsg(b); err != nil {
		return fmt.Errorf("ipc: a chunk: %w", err)
	}
	whole, err := k.transfers.Add(&c)
	if err != nil || whole == nil {
		return err
	}
	r, err := ipc.ReadResponse(whole)
	if err != nil {
		return err
	}
	return k.response(r)
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
		o, err := ipc.ReadOutcome(r.Body) // which nobody else has
		if err != nil {
			return err
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
