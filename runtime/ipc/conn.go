package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
	wire "github.com/sie-engine/sie/internal/ipc"
)

const (
	// maxQueued bounds the messages of a connection that wait to be written. Their bytes are
	// bounded by the gate, which counts results until they are written.
	maxQueued = 256
	readBytes = 64 << 10
	// writeBytes is how much of small messages is written at once.
	writeBytes = 64 << 10
	maxID      = 256 // bytes of the id of a call
	// keepBytes is the largest buffer that a reader keeps for its next frame.
	keepBytes = 1 << 20
)

// conn is one connection of a sidecar. Its reader and its writer have a goroutine each.
type conn struct {
	server *Server
	net    *net.UnixConn
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	out    chan message
	calls  chan struct{} // one for each call that runs
	work   sync.WaitGroup

	transfers *wire.Transfers // requests in chunks, of the reader alone
	refused   map[string]bool // ids of requests in chunks that were refused and still come
	held      int64           // bytes that are reserved for transfers
}

// message is a serialised Response on its way out.
type message struct {
	id   string
	data []byte
	done func() // nil, or called once when it was written or dropped
}

func (m *message) end() {
	if m.done != nil {
		m.done()
	}
}

func newConn(s *Server, c *net.UnixConn) *conn {
	x := &conn{
		server: s, net: c, out: make(chan message, maxQueued), calls: make(chan struct{}, s.opt.MaxCalls),
		transfers: wire.NewTransfers(maxRequest, maxRequest), refused: map[string]bool{},
	}
	x.ctx, x.cancel = context.WithCancel(s.ctx)
	return x
}

// serve runs the connection until it ends, and returns when all its work has ended too.
func (c *conn) serve() {
	end := context.AfterFunc(c.ctx, func() { _ = c.net.Close() })
	defer end()
	var writer sync.WaitGroup
	writer.Go(c.write)
	if err := c.read(); err != nil && c.ctx.Err() == nil {
		c.server.opt.Log.Warn("ipc: a connection ended", "error", err)
	}
	c.server.gate.Free(c.held) // of requests that are not whole
	c.cancel()                 // ends its slices and its writer
	c.work.Wait()
	writer.Wait()
	for {
		select {
		case m := <-c.out:
			m.end()
			continue
		default:
		}
		break
	}
	c.server.forget(c)
}

// read begins a call for each frame. It returns nil when the peer has closed the connection.
func (c *conn) read() error {
	in := bufio.NewReaderSize(c.net, readBytes)
	var buf []byte
	for {
		var err error
		if buf, err = wire.ReadFrame(in, buf); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if wire.IsChunk(buf, wire.KindRequestChunk) {
			err = c.chunk(buf)
		} else {
			err = c.request(buf)
		}
		if err != nil {
			return err
		}
		if cap(buf) > keepBytes {
			buf = nil
		}
	}
}

// request begins the call of a request.
func (c *conn) request(b []byte) error {
	var r wire.Request
	if _, err := r.UnmarshalMsg(b); err != nil {
		return fmt.Errorf("a message of %d bytes is not a request: %w", len(b), err)
	}
	if len(r.RequestID) > maxID {
		return fmt.Errorf("the request_id of a request has %d bytes; at most %d are taken",
			len(r.RequestID), maxID)
	}
	c.begin(&r)
	return nil
}

// maxRequest bounds the requests in chunks of a connection that are not whole, each and together.
const maxRequest = wire.MaxTransfer

// chunk takes a part of a request. Its bytes are reserved as they come; when there is no room the
// parts are thrown away and the request is refused.
func (c *conn) chunk(b []byte) error {
	var k wire.Chunk
	if _, err := k.UnmarshalMsg(b); err != nil {
		return fmt.Errorf("a chunk: %w", err)
	}
	if len(k.RequestID) > maxID {
		return fmt.Errorf("the request_id of a chunk has %d bytes; at most %d are taken", len(k.RequestID), maxID)
	}
	if c.refused[k.RequestID] {
		if k.Index+1 >= k.Count {
			delete(c.refused, k.RequestID)
		}
		return nil
	}
	gate := c.server.gate
	if why := gate.Reserve(int64(len(k.Payload))); why != nil {
		dropped := int64(c.transfers.Drop(k.RequestID))
		gate.Free(dropped)
		c.held -= dropped
		if len(c.refused) >= maxRefused {
			return fmt.Errorf("%d requests in chunks go on after they were refused", maxRefused)
		}
		if k.Index+1 < k.Count {
			c.refused[k.RequestID] = true
		}
		c.refuse(&wire.Request{RequestID: k.RequestID}, errs.As(why))
		return nil
	}
	c.held += int64(len(k.Payload))
	whole, err := c.transfers.Add(&k)
	if whole != nil {
		gate.Free(int64(len(whole))) // begin reserves its body
		c.held -= int64(len(whole))
		err = c.request(whole)
	}
	return err
}

// maxRefused bounds the requests in chunks that were refused and of which chunks still come.
const maxRefused = 64

// begin answers a request, or begins its call.
func (c *conn) begin(r *wire.Request) {
	switch {
	case r.Version != wire.Version:
		c.refuse(r, errs.Invalidf("version",
			"Field 'version' is %d; this server speaks version %d of the protocol", r.Version, wire.Version))
		return
	case r.Method == wire.MethodPing: // also when many calls run
		c.server.ping(c, r)
		return
	}
	m, known := methods[r.Method]
	if !known {
		c.refuse(r, errs.Invalidf("method", "Field 'method': there is no method %s", quoted(r.Method)))
		return
	}
	select {
	case c.calls <- struct{}{}:
	default:
		c.refuse(r, errs.FullQueue(cap(c.calls), 1, cap(c.calls)))
		return
	}
	held := int64(len(r.Body))
	if held <= m.small {
		held = 0
	}
	if err := c.server.gate.Reserve(held); err != nil {
		<-c.calls
		m.full(c, r, errs.As(err)) // by the reader: one body at a time is not counted
		return
	}
	c.work.Add(1)
	c.server.crew.run(func() {
		defer c.work.Done()
		defer func() { <-c.calls }()
		m.do(c, r, held)
	})
}

// quoted returns the beginning of a sender's name for an error.
func quoted(name string) string { return errs.Quote(files.Clip(name, 80)) }

// method is what a server does for a call.
type method struct {
	// do answers a call for whose body held bytes are reserved, and frees them.
	do func(c *conn, r *wire.Request, held int64)
	// small is the size in bytes up to which a body is not counted: a full server still takes
	// cancellations.
	small int64
	// full answers a call for whose body there is no room.
	full func(c *conn, r *wire.Request, why *errs.Error)
}

// smallBytes is a body that is not counted. MaxCalls and MaxConns bound them together.
const smallBytes = 4 << 10

// methods holds what each method but Ping does.
var methods map[string]method

func init() {
	simple := func(do func(*conn, *wire.Request)) method {
		return method{func(c *conn, r *wire.Request, held int64) {
			defer c.server.gate.Free(held)
			do(c, r)
		}, smallBytes, (*conn).refuse}
	}
	batch := method{(*conn).runBatch, 0, (*conn).giveBack}
	process := method{(*conn).processBatch, 0, (*conn).refuse}
	methods = map[string]method{
		wire.MethodEnsureModelReady:    simple((*conn).ensure),
		wire.MethodRunBatch:            batch,
		wire.MethodProcessEncodeBatch:  process,
		wire.MethodProcessScoreBatch:   process,
		wire.MethodProcessExtractBatch: process,
		wire.MethodCancelItems:         simple((*conn).cancelItems),
		wire.MethodWorkerCapabilities:  simple((*conn).capabilities),
		wire.MethodApplyModelConfig:    simple((*conn).applyConfig),
		wire.MethodReplaceModelConfigs: simple((*conn).replaceConfigs),
		wire.MethodSetPinnedModels:     simple((*conn).pin),
		wire.MethodDrain:               simple((*conn).drain),
	}
}

// send hands a message to the writer. When the connection has ended, the message is dropped.
func (c *conn) send(m message) {
	select {
	case c.out <- m:
	case <-c.ctx.Done():
		m.end()
	}
}

// body is a generated type.
type body interface {
	MarshalMsg(b []byte) ([]byte, error)
}

// reply answers a call with b.
func (c *conn) reply(r *wire.Request, b body) {
	raw, err := b.MarshalMsg(nil)
	if err != nil {
		c.refuse(r, errs.Internal(err))
		return
	}
	c.sendResponse(r, wire.Response{
		Kind: wire.KindResponse, Version: wire.Version, RequestID: r.RequestID, OK: true, Body: raw,
	})
}

// refuse answers a call with an error.
func (c *conn) refuse(r *wire.Request, err *errs.Error) {
	c.sendResponse(r, wire.Response{
		Kind: wire.KindResponse, Version: wire.Version, RequestID: r.RequestID, Body: msgp.Raw{0xc0},
		Error: err.Message, Err: err.AppendMsgpack(nil),
	})
}

func (c *conn) sendResponse(r *wire.Request, a wire.Response) {
	raw, err := a.MarshalMsg(nil)
	if err != nil { // strings and raw bytes always have a form
		panic("ipc: internal error: " + err.Error())
	}
	if most := transferLimit(r); len(raw) > most {
		c.refuse(r, errs.Internal(
			fmt.Errorf("an answer of %d bytes to %s; at most %d cross", len(raw), r.Method, most)))
		return
	}
	c.send(message{id: r.RequestID, data: raw})
}

// decode reads the body of a call, or refuses the call.
func decode[T any, P interface {
	*T
	UnmarshalMsg([]byte) ([]byte, error)
}](c *conn, r *wire.Request) (*T, bool) {
	b := new(T)
	if _, err := P(b).UnmarshalMsg(r.Body); err != nil {
		c.refuse(r, errs.Invalidf("body", "Field 'body' of %s: %v", r.Method, err))
		return nil, false
	}
	return b, true
}

// transferLimit returns the largest Response in bytes that a caller takes.
func transferLimit(r *wire.Request) int {
	switch {
	case !r.AcceptsChunks:
		return wire.MaxFrame
	case r.MostBytes == 0:
		return wire.MaxTransfer
	}
	return int(min(max(r.MostBytes, wire.MaxFrame), wire.MaxResponse))
}

// write writes messages until the connection ends. Small ones that wait together are written
// together.
func (c *conn) write() {
	defer c.cancel()
	var buf []byte
	for {
		var m message
		select {
		case m = <-c.out:
		case <-c.ctx.Done():
			return
		}
		var written []message
		buf = buf[:0]
		for more := true; more; {
			if len(m.data) > wire.MaxFrame {
				break
			}
			buf = appendFrame(buf, m.data)
			written = append(written, m)
			m = message{}
			if len(buf) >= writeBytes {
				break
			}
			select {
			case m = <-c.out:
			default:
				more = false
			}
		}
		_, err := c.net.Write(buf)
		for i := range written {
			written[i].end()
		}
		if err == nil && m.data != nil {
			err = c.writeChunks(&m)
		}
		m.end()
		if err != nil {
			return
		}
		if cap(buf) > keepBytes {
			buf = nil
		}
	}
}

// appendFrame appends a map that is serialised already as a frame.
func appendFrame(dst, data []byte) []byte {
	n := len(data)
	return append(append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), data...)
}

// writeChunks writes a message of more than a frame.
func (c *conn) writeChunks(m *message) error {
	pieces := net.Buffers(wire.Chunks(wire.KindChunk, m.id, m.data))
	_, err := pieces.WriteTo(c.net)
	return err
}
