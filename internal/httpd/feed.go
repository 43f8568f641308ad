package httpd

import (
	"cmp"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"
)

// feedBuffer is the size of the kernel's send buffer for one watcher of a feed, in bytes.
const feedBuffer = 64 << 10

// FeedOptions configures a Feed. Zero fields take the defaults in brackets.
type FeedOptions struct {
	Interval     time.Duration // between two frames [200 ms]
	WriteTimeout time.Duration // for sending one frame; a slower watcher is dropped [5 s]
	MaxWatchers  int           // open sockets [256]
	// Frame makes a frame. It is called at most twice an interval, however many watchers there are,
	// and once for each watcher when the server shuts down. Several goroutines may call it at once.
	Frame func() ([]byte, error)
}

// Feed sends frames to WebSockets: one at once, then one every interval. Safe for concurrent use.
type Feed struct {
	server *Server
	opt    FeedOptions
	quit   chan struct{} // closed by stop
	all    sync.WaitGroup

	// latest is sent to all watchers until it is older than half an interval. The goroutine that
	// holds building makes the next frame; the others do not wait for it.
	latest   atomic.Pointer[frame]
	building sync.Mutex
	built    atomic.Int64 // frames made, for tests

	mu      sync.Mutex // guards the fields below
	open    int
	stopped bool
}

// frame is one message to the watchers.
type frame struct {
	made  time.Time
	bytes []byte
}

// NewFeed returns a feed of the server, which Shutdown ends. Call it before Serve.
func (s *Server) NewFeed(opt FeedOptions) *Feed {
	opt.Interval, opt.WriteTimeout = cmp.Or(opt.Interval, 200*time.Millisecond),
		cmp.Or(opt.WriteTimeout, 5*time.Second)
	opt.MaxWatchers = cmp.Or(opt.MaxWatchers, 256)
	f := &Feed{server: s, opt: opt, quit: make(chan struct{})}
	s.mu.Lock()
	s.feeds = append(s.feeds, f)
	s.mu.Unlock()
	return f
}

// Watchers returns the number of open sockets.
func (f *Feed) Watchers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// enter reports whether one more socket may watch; if so, the caller later calls leave.
func (f *Feed) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.open >= f.opt.MaxWatchers {
		return false
	}
	f.open++
	f.all.Add(1)
	return true
}

func (f *Feed) leave() {
	f.mu.Lock()
	f.open--
	f.mu.Unlock()
	f.all.Done()
}

// stop ends every watcher after a last frame and admits no more; wait returns when all have ended.
func (f *Feed) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	close(f.quit)
}

func (f *Feed) wait() { f.all.Wait() }

var upgrader = websocket.FastHTTPUpgrader{
	CheckOrigin:     func(*fasthttp.RequestCtx) bool { return true }, // Serve has called Foreign
	ReadBufferSize:  1 << 10,
	WriteBufferSize: 16 << 10,
	Subprotocols:    []string{"sie"}, // offered by a browser beside the protocol that carries its key
}

// Serve makes the request's connection a watcher, or refuses it.
func (f *Feed) Serve(r *Request, _ string) {
	if !websocket.FastHTTPIsWebSocketUpgrade(r.RequestCtx) {
		r.Plain(fasthttp.StatusUpgradeRequired, "this is a WebSocket route: connect with ws://")
		r.Response.Header.Set("Upgrade", "websocket")
		return
	}
	if r.Foreign() {
		r.Plain(fasthttp.StatusForbidden,
			"pages of this origin may not read the status; --cors-origin allows one")
		return
	}
	if !f.enter() {
		r.Response.Header.Set("Retry-After", "5")
		r.Plain(fasthttp.StatusServiceUnavailable,
			"too many status sockets are open, or the server is shutting down")
		return
	}
	// The upgrader writes its own answer when it refuses. Where the answer cannot be written,
	// stream does not run.
	if err := upgrader.Upgrade(r.RequestCtx, f.stream); err != nil {
		f.leave()
	} else {
		f.server.conns.handOver(r.Conn(), f.leave)
	}
}

// stream sends frames until the watcher leaves or the server shuts down. When it returns, fasthttp
// owns the connection again.
func (f *Feed) stream(c *websocket.Conn) {
	defer f.leave()
	defer func() {
		if p := recover(); p != nil { // fasthttp does not recover here: the process would end
			f.server.opt.Log.Error("panic in a status socket", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if raw, ok := c.NetConn().(interface{ UnsafeConn() net.Conn }); ok {
		if tcp, ok := plainConn(raw.UnsafeConn()).(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(feedBuffer)
		}
	}
	c.SetReadLimit(4 << 10) // watchers send nothing but control frames
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, _, err := c.ReadMessage(); err != nil {
				return
			}
		}
	}()
	defer func() { // the reader must have left the connection before fasthttp gets it back
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-gone
	}()
	tick := time.NewTicker(f.opt.Interval)
	defer tick.Stop()
	for {
		if f.send(c, false) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-gone:
			return
		case <-f.quit:
			if f.send(c, true) == nil { // the last frame shows the server's state now
				_ = c.WriteControl(websocket.CloseMessage,
					websocket.FormatCloseMessage(websocket.CloseGoingAway, "shutting down"),
					time.Now().Add(time.Second))
			}
			return
		}
	}
}

// send sends the latest frame, or with now a new one.
func (f *Feed) send(c *websocket.Conn, now bool) error {
	b, err := f.frame(now)
	if err != nil {
		return err
	}
	_ = c.SetWriteDeadline(time.Now().Add(f.opt.WriteTimeout))
	return c.WriteMessage(websocket.TextMessage, b)
}

func (f *Feed) frame(now bool) ([]byte, error) {
	last := f.latest.Load()
	if last != nil && !now && time.Since(last.made) < f.opt.Interval/2 {
		return last.bytes, nil
	}
	if f.building.TryLock() {
		defer f.building.Unlock()
	} else if last != nil && !now {
		return last.bytes, nil
	}
	f.built.Add(1)
	next := &frame{made: time.Now()}
	var err error
	if next.bytes, err = f.opt.Frame(); err != nil {
		return nil, err
	}
	f.latest.Store(next)
	return next.bytes, nil
}
