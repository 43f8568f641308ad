package ipcclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
)

const patience = 2 * time.Minute

// rig is a client with a fake server whose answers each test writes.
type rig struct {
	t      *testing.T
	path   string
	c      *Client
	events chan string
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	pongs  int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		t: t, path: filepath.Join(t.TempDir(), "s"), events: make(chan string, 100),
		ended: make(chan struct{}),
	}
	r.c = New(Options{Path: r.path, WorkerID: "w", Log: slog.New(slog.DiscardHandler), Events: Events{
		Up: func(p ipc.PingResponse, same bool) {
			r.events <- "up " + p.Epoch + map[bool]string{true: " same"}[same]
		},
		Pong: func(ipc.PingResponse) {
			r.mu.Lock()
			r.pongs++
			r.mu.Unlock()
		},
		Lost: func() { r.events <- "lost" },
		Dead: func() { r.events <- "dead" },
	}})
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.c.Run(ctx); close(r.ended) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-r.ended:
		case <-time.After(patience):
			t.Error("the client does not end")
		}
	})
	return r
}

func (r *rig) want(event string) {
	r.t.Helper()
	select {
	case got := <-r.events:
		if got != event {
			r.t.Fatalf("%q came, want %q", got, event)
		}
	case <-time.After(patience):
		r.t.Fatalf("%q did not come", event)
	}
}

// server answers Pings itself and gives other requests to answer.
type server struct {
	t     *testing.T
	l     net.Listener
	epoch string
	mu    sync.Mutex
	conns []*peer
	done  sync.WaitGroup
}

type peer struct {
	t  *testing.T
	c  net.Conn
	mu sync.Mutex
}

func (p *peer) send(m interface {
	MarshalMsg([]byte) ([]byte, error)
	Msgsize() int
}) {
	frame, err := ipc.AppendFrame(nil, m)
	if err != nil {
		p.t.Error(err)
	}
	p.raw(frame)
}

func (p *peer) raw(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.c.Write(b)
}

func (p *peer) reply(id string, m msgp.Marshaler) {
	body, err := m.MarshalMsg(nil)
	if err != nil {
		p.t.Error(err)
	}
	p.send(&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: id, OK: true, Body: body})
}

func serve(r *rig, epoch string, answer func(p *peer, q *ipc.Request)) *server {
	l, err := net.Listen("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &server{t: r.t, l: l, epoch: epoch}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p := &peer{t: r.t, c: c}
			s.mu.Lock()
			s.conns = append(s.conns, p)
			s.mu.Unlock()
			s.done.Go(func() {
				defer c.Close()
				for {
					b, err := ipc.ReadFrame(c, nil)
					if err != nil {
						return
					}
					var q ipc.Request
					if _, err := q.UnmarshalMsg(b); err != nil {
						r.t.Error(err)
						return
					}
					if q.Method == ipc.MethodPing {
						p.reply(q.RequestID, &ipc.PingResponse{Epoch: s.epoch, Ready: true})
						continue
					}
					answer(p, &q)
				}
			})
		}
	})
	r.t.Cleanup(s.kill)
	return s
}

// kill ends the process that the server stands for.
func (s *server) kill() {
	s.l.Close()
	s.hangUp()
	s.done.Wait()
}

func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.conns {
		p.c.Close()
	}
	s.conns = nil
}

// Many calls share the connection; their answers come in any order, each to its own.
func TestCallsShareTheConnection(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	var held []func()
	serve(r, "a", func(p *peer, q *ipc.Request) {
		var m ipc.ModelRequest
		if _, err := m.UnmarshalMsg(q.Body); err != nil {
			t.Error(err)
		}
		id, model := q.RequestID, m.ModelID
		mu.Lock()
		defer mu.Unlock()
		held = append(held, func() { p.reply(id, &ipc.ReadyResponse{State: model}) })
		if len(held) == 50 {
			for i := range held { // the last first
				held[len(held)-1-i]()
			}
		}
	})
	r.want("up a")
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			var got ipc.ReadyResponse
			want := strings.Repeat("m", i)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := r.c.Call(ctx, ipc.MethodEnsureModelReady, &ipc.ModelRequest{ModelID: want}, &got)
			if err != nil || got.State != want {
				t.Errorf("%q %v, want %q", got.State, err, want)
			}
		})
	}
	calls.Wait()
}

// Outcomes come as they are sent, before the end of their call; a response in chunks is put
// together; the server's error arrives whole.
func TestOutcomesChunksErrors(t *testing.T) {
	r := newRig(t)
	want := errs.TooLong("items", "too long for this server")
	serve(r, "a", func(p *peer, q *ipc.Request) {
		if q.Method == ipc.MethodDrain {
			p.send(&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: q.RequestID, Error: "text",
				Err: want.AppendMsgpack(nil)})
			return
		}
		if !q.AcceptsOutcomes || !q.AcceptsChunks {
			t.Errorf("%+v", q)
		}
		for _, id := range []string{"x", "y"} {
			body, _ := (&ipc.Outcome{WorkItemID: id, Result: msgp.AppendNil(nil)}).MarshalMsg(nil)
			p.send(&ipc.Response{Kind: ipc.KindOutcome, Version: 1, RequestID: q.RequestID, OK: true,
				Body: body})
		}
		last := ipc.BatchOutcome{Outcomes: []ipc.Outcome{{WorkItemID: "z",
			Result: msgp.AppendBytes(nil, bytes.Repeat([]byte("v"), 9<<20))}}}
		body, _ := last.MarshalMsg(nil)
		whole, _ := (&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: q.RequestID, OK: true,
			Body: body}).MarshalMsg(nil)
		sum := sha256.Sum256(whole)
		n := (len(whole) + ipc.ChunkBytes - 1) / ipc.ChunkBytes
		for i := range n {
			p.send(&ipc.Chunk{Kind: ipc.KindChunk, Version: 1, RequestID: q.RequestID, Digest: sum[:],
				Index: uint32(i), Count: uint32(n), TotalBytes: uint64(len(whole)),
				Payload: whole[i*ipc.ChunkBytes : min((i+1)*ipc.ChunkBytes, len(whole))]})
		}
	})
	r.want("up a")
	var order []string
	end := make(chan error, 1)
	_, err := r.c.Go(ipc.MethodRunBatch, &ipc.RunBatchRequest{},
		func(o ipc.Outcome) { order = append(order, o.WorkItemID) },
		func(resp *ipc.Response, err error) {
			var o ipc.BatchOutcome
			if err == nil {
				_, err = o.UnmarshalMsg(resp.Body)
			}
			for _, x := range o.Outcomes {
				order = append(order, x.WorkItemID)
			}
			end <- err
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil || strings.Join(order, "") != "xyz" {
		t.Errorf("%v %v", order, err)
	}
	err = r.c.Call(t.Context(), ipc.MethodDrain, &ipc.DrainRequest{}, nil)
	if e := errs.As(err); e.Code != want.Code || e.Message != want.Message {
		t.Errorf("%v", err)
	}
}

// Frames that break the protocol end the connection; the calls that ran end with ErrLost, and the
// same server is met again. Memory does not follow what a length claims.
func TestBrokenFrames(t *testing.T) {
	chunk := func(change func(*ipc.Chunk)) []byte {
		c := ipc.Chunk{Kind: ipc.KindChunk, Version: 1, Digest: make([]byte, 32), Count: 2, TotalBytes: 4,
			Payload: []byte("ab")}
		change(&c)
		b, _ := ipc.AppendFrame(nil, &c)
		return b
	}
	two := func(a, b []byte) []byte { return append(a, b...) }
	deep := append([]byte{0, 0x0f, 0x42, 0x40 + 1}, bytes.Repeat([]byte{0x91}, 1_000_001)...)
	for name, frame := range map[string][]byte{
		"a length above the limit": {0xff, 0xff, 0xff, 0xff},
		"no msgpack":               {0, 0, 0, 2, 0xc1, 0xc1},
		"an array":                 {0, 0, 0, 1, 0x90},
		"deep nesting":             deep,
		"a response to no call": mustFrame(&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: "77",
			OK: true}),
		"another version": mustFrame(&ipc.Response{Kind: ipc.KindResponse, Version: 2, RequestID: "1",
			OK: true}),
		"a refusal":           mustFrame(&ipc.Response{Kind: ipc.KindResponse, Version: 1, Error: "no"}),
		"a chunk too early":   chunk(func(c *ipc.Chunk) { c.Index = 1 }),
		"a chunk too large":   chunk(func(c *ipc.Chunk) { c.TotalBytes = 1 << 40 }),
		"no chunks":           chunk(func(c *ipc.Chunk) { c.Count = 0 }),
		"more than announced": chunk(func(c *ipc.Chunk) { c.Payload = []byte("abcde") }),
		"another digest":      two(chunk(func(c *ipc.Chunk) {}), chunk(func(c *ipc.Chunk) { c.Index = 1 })),
		"a transfer that changes": two(chunk(func(c *ipc.Chunk) {}),
			chunk(func(c *ipc.Chunk) { c.Index, c.TotalBytes = 1, 5 })),
		"many transfers": two(chunk(func(c *ipc.Chunk) { c.TotalBytes, c.RequestID = ipc.MaxTransfer, "a" }),
			bytes.Join([][]byte{
				chunk(func(c *ipc.Chunk) { c.TotalBytes, c.RequestID = ipc.MaxTransfer, "b" }),
				chunk(func(c *ipc.Chunk) { c.TotalBytes, c.RequestID = ipc.MaxTransfer, "c" }),
				chunk(func(c *ipc.Chunk) { c.TotalBytes, c.RequestID = ipc.MaxTransfer, "d" }),
				chunk(func(c *ipc.Chunk) { c.TotalBytes, c.RequestID = ipc.MaxTransfer, "e" }),
			}, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			serve(r, "a", func(p *peer, q *ipc.Request) { p.raw(frame) })
			r.want("up a")
			err := r.c.Call(t.Context(), ipc.MethodRunBatch, &ipc.RunBatchRequest{}, nil)
			if !errors.Is(err, ErrLost) {
				t.Errorf("the call ended with %v", err)
			}
			r.want("lost")
			r.want("up a same")
		})
	}
}

func mustFrame(r *ipc.Response) []byte {
	b, err := ipc.AppendFrame(nil, r)
	if err != nil {
		panic(err)
	}
	return b
}

// A process that is gone, and another in its place, are each told once; a connection that ends is
// no death.
func TestDeaths(t *testing.T) {
	r := newRig(t)
	hold := func(p *peer, q *ipc.Request) {}
	if _, err := r.c.Go(ipc.MethodDrain, &ipc.DrainRequest{}, nil, nil); !errors.Is(err, ErrAway) {
		t.Errorf("a call without a server: %v", err)
	}
	s := serve(r, "a", hold)
	r.want("up a")
	lost := make(chan error, 2)
	if _, err := r.c.Go(ipc.MethodDrain, &ipc.DrainRequest{}, nil,
		func(_ *ipc.Response, err error) { lost <- err }); err != nil {
		t.Fatal(err)
	}
	s.hangUp()
	r.want("lost")
	if err := <-lost; !errors.Is(err, ErrLost) {
		t.Errorf("%v", err)
	}
	r.want("up a same")
	s.kill()
	r.want("lost")
	r.want("dead")
	s = serve(r, "b", hold)
	r.want("up b")
	s.mu.Lock()
	s.epoch = "c" // another process took the socket over before the client noticed
	s.mu.Unlock()
	s.hangUp()
	r.want("lost")
	r.want("dead")
	r.want("up c")
}

// Calls are bounded, and a call above the frame's limit is refused before it is sent.
func TestCallsAreBounded(t *testing.T) {
	r := newRig(t)
	serve(r, "a", func(p *peer, q *ipc.Request) {})
	r.want("up a")
	ended := make(chan struct{}, maxCalls)
	n, busy := 0, error(nil)
	for n = range maxCalls + 10 {
		_, busy = r.c.Go(ipc.MethodDrain, &ipc.DrainRequest{}, nil,
			func(*ipc.Response, error) { ended <- struct{}{} })
		if busy != nil {
			break
		}
	}
	if !errors.Is(busy, ErrBusy) || n > maxCalls {
		t.Errorf("call %d: %v", n, busy)
	}
	big := ipc.RunBatchRequest{ModelID: strings.Repeat("m", ipc.MaxFrame)}
	var tooLarge *ipc.ErrFrame
	if _, err := r.c.Go(ipc.MethodRunBatch, &big, nil, nil); !errors.As(err, &tooLarge) {
		t.Errorf("a call of more than a frame to a server that takes no chunks: %v", err)
	}
	r.stop()
	<-r.ended
	for range n {
		<-ended
	}
}

// A request of more than a frame goes in chunks to a server that takes so many bytes.
func TestRequestsInChunks(t *testing.T) {
	parts := ipc.NewTransfers(ipc.MaxTransfer, ipc.MaxTransfer)
	k := newConn(nil, ipc.MaxTransfer, slog.New(slog.DiscardHandler), nil)
	run := &ipc.RunBatchRequest{ModelID: strings.Repeat("m", ipc.MaxFrame)}
	size := uint64(ipc.MaxFrame + 1000)
	for _, takes := range []uint64{0, ipc.MaxFrame, size, 1 << 60} {
		k.serverTakes(takes)
		err := k.start("1", ipc.MethodRunBatch, run, nil, nil)
		var tooLarge *ipc.ErrFrame
		if takes < size {
			if !errors.As(err, &tooLarge) || k.unsent != 0 {
				t.Errorf("a server that takes %d bytes: %v", takes, err)
			}
			continue
		}
		sent := bytes.NewReader(bytes.Join(k.frames, nil))
		if err != nil || k.unsent != sent.Len() || k.unsent > int(size)+8*ipc.ChunkBytes {
			t.Fatalf("%d bytes wait: %v", k.unsent, err)
		}
		var whole []byte
		for whole == nil {
			b, err := ipc.ReadFrame(sent, nil)
			var c ipc.Chunk
			if err == nil && !ipc.IsChunk(b, ipc.KindRequestChunk) {
				t.Fatal("a frame that is no chunk")
			}
			if err == nil {
				_, err = c.UnmarshalMsg(b)
			}
			if err == nil {
				whole, err = parts.Add(&c)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var q ipc.Request
		var got ipc.RunBatchRequest
		_, err = q.UnmarshalMsg(whole)
		if err == nil {
			_, err = got.UnmarshalMsg(q.Body)
		}
		if err != nil || q.Method != ipc.MethodRunBatch || got.ModelID != run.ModelID || sent.Len() > 0 {
			t.Errorf("%s with %d bytes, %d follow: %v", q.Method, len(got.ModelID), sent.Len(), err)
		}
		k.frames, k.unsent = nil, 0
	}
	run.ModelID = strings.Repeat("m", ipc.MaxTransfer)
	if err := k.start("2", ipc.MethodRunBatch, run, nil, nil); err == nil || k.unsent != 0 {
		t.Errorf("more than %d bytes: %v", ipc.MaxTransfer, err)
	}
}

// A client that ends leaves no goroutine.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRig(t)
	s := serve(r, "a", func(p *peer, q *ipc.Request) {})
	r.want("up a")
	r.stop()
	<-r.ended
	s.kill()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 100_000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before,
				buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

// Whatever comes from the socket is read or refused, never a crash.
func FuzzFrame(f *testing.F) {
	ok := mustFrame(&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: "1", OK: true,
		Body: []byte{0x80}})
	f.Add(ok[4:])
	f.Add([]byte{0x80})
	f.Add([]byte{0x81, 0xa4, 'k', 'i', 'n', 'd', 0xb5})
	chunk, _ := (&ipc.Chunk{Kind: ipc.KindChunk, Version: 1, RequestID: "1", Count: 1, TotalBytes: 1 << 27,
		Digest: make([]byte, 32), Payload: []byte("x")}).MarshalMsg(nil)
	f.Add(chunk)
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newConn(nil, ipc.MaxTransfer, slog.New(slog.DiscardHandler), nil)
		ended := 0
		k.calls["1"] = &call{
			method: "m", outcome: func(ipc.Outcome) {}, done: func(*ipc.Response, error) { ended++ },
		}
		err := k.frame(b)
		if ended > 1 || ended == 1 && len(k.calls) != 0 {
			t.Errorf("the call ended %d times, %d are left, %v", ended, len(k.calls), err)
		}
		if held := k.transfers.Held(); held > len(b) {
			t.Errorf("%d bytes are held of %d", held, len(b))
		}
	})
}

// A response whose bytes changed between the chunks is not used.
func TestDigest(t *testing.T) {
	r := newRig(t)
	serve(r, "a", func(p *peer, q *ipc.Request) {
		whole, err := (&ipc.Response{Kind: ipc.KindResponse, Version: 1, RequestID: q.RequestID, OK: true,
			Body: []byte{0x80}}).MarshalMsg(nil)
		if err != nil {
			t.Error(err)
		}
		sum := sha256.Sum256(whole)
		sum[0]++
		p.send(&ipc.Chunk{Kind: ipc.KindChunk, Version: 1, RequestID: q.RequestID, Digest: sum[:], Count: 1,
			TotalBytes: uint64(len(whole)), Payload: whole})
	})
	r.want("up a")
	err := r.c.Call(t.Context(), ipc.MethodDrain, &ipc.DrainRequest{}, &ipc.DrainResponse{})
	if !errors.Is(err, ErrLost) {
		t.Errorf("the call ended with %v", err)
	}
}
