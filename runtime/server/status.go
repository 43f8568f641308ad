package server

import (
	"encoding/json"
	"net"
	"os"
	"os/user"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
)

const (
	statusInterval = 200 * time.Millisecond
	// statusWrite bounds one send to a slow watcher, who is then dropped, and statusBuffer what the kernel holds for one.
	statusWrite  = 5 * time.Second
	statusBuffer = 64 << 10
	maxWatchers  = 256
)

// watchers are the open status sockets. Safe for concurrent use.
type watchers struct {
	interval, write time.Duration
	max             int
	quit            chan struct{} // closed by stop
	all             sync.WaitGroup

	// latest is the frame that all watchers get until it is older than half an interval. Who holds building makes the next;
	// the others do not wait for it.
	latest   atomic.Pointer[statusFrame]
	building sync.Mutex
	built    atomic.Int64 // frames made, for tests

	mu      sync.Mutex // guards the fields below
	open    int
	stopped bool
}

// statusFrame is one frame of /ws/status, encoded.
type statusFrame struct {
	made  time.Time
	bytes []byte
}

func newWatchers(most int) *watchers {
	return &watchers{interval: statusInterval, write: statusWrite, max: most, quit: make(chan struct{})}
}

// enter reports whether one more may watch; it then ends with leave.
func (w *watchers) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.open >= w.max {
		return false
	}
	w.open++
	w.all.Add(1)
	return true
}

func (w *watchers) leave() {
	w.mu.Lock()
	w.open--
	w.mu.Unlock()
	w.all.Done()
}

// stop ends every watcher with a last frame and lets no more in; wait returns when they have ended.
func (w *watchers) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	close(w.quit)
}

func (w *watchers) wait() { w.all.Wait() }

var upgrader = websocket.FastHTTPUpgrader{
	CheckOrigin:     func(*fasthttp.RequestCtx) bool { return true }, // foreign has looked
	ReadBufferSize:  1 << 10,
	WriteBufferSize: 16 << 10,
	Subprotocols:    []string{"sie"}, // what a browser that sends a key offers beside it
}

// status answers GET /ws/status: a frame at once and one every 200 ms.
func (s *Server) status(ctx *fasthttp.RequestCtx, _ string) {
	if !websocket.FastHTTPIsWebSocketUpgrade(ctx) {
		plain(ctx, fasthttp.StatusUpgradeRequired, "this is a WebSocket route: connect with ws://")
		ctx.Response.Header.Set("Upgrade", "websocket")
		return
	}
	if s.foreign(ctx) {
		plain(ctx, fasthttp.StatusForbidden, "pages of this origin may not read the status; --cors-origin allows one")
		return
	}
	if !s.watchers.enter() {
		ctx.Response.Header.Set("Retry-After", "5")
		plain(ctx, fasthttp.StatusServiceUnavailable, "too many status sockets are open, or the server is shutting down")
		return
	}
	// The upgrader writes its own answer when it refuses.
	if err := upgrader.Upgrade(ctx, s.stream); err != nil {
		s.watchers.leave()
	}
}

// stream sends frames until the watcher or the server goes. The connection is fasthttp's again once it returns.
func (s *Server) stream(c *websocket.Conn) {
	defer s.watchers.leave()
	defer func() {
		if p := recover(); p != nil { // fasthttp would let it end the process
			s.opt.Log.Error("panic in a status socket", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if raw, ok := c.NetConn().(interface{ UnsafeConn() net.Conn }); ok {
		if tcp, ok := plainConn(raw.UnsafeConn()).(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(statusBuffer)
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
	defer func() { // the reader must be out of the connection before it is handed back
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-gone
	}()
	tick := time.NewTicker(s.watchers.interval)
	defer tick.Stop()
	for {
		if s.frame(c, false) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-gone:
			return
		case <-s.watchers.quit:
			if s.frame(c, true) == nil { // it says that the server is not ready any more
				_ = c.WriteControl(websocket.CloseMessage,
					websocket.FormatCloseMessage(websocket.CloseGoingAway, "shutting down"), time.Now().Add(time.Second))
			}
			return
		}
	}
}

// frame sends the latest frame, or one made now.
func (s *Server) frame(c *websocket.Conn, now bool) error {
	f, err := s.latestFrame(now)
	if err != nil {
		return err
	}
	_ = c.SetWriteDeadline(time.Now().Add(s.watchers.write))
	return c.WriteMessage(websocket.TextMessage, f.bytes)
}

func (s *Server) latestFrame(now bool) (*statusFrame, error) {
	w := s.watchers
	f := w.latest.Load()
	if f != nil && !now && time.Since(f.made) < w.interval/2 {
		return f, nil
	}
	if w.building.TryLock() {
		defer w.building.Unlock()
	} else if f != nil && !now {
		return f, nil
	}
	w.built.Add(1)
	f = &statusFrame{made: time.Now()}
	var err error
	if f.bytes, err = json.Marshal(s.statusNow()); err != nil {
		return nil, err
	}
	w.latest.Store(f)
	return f, nil
}

func (s *Server) statusNow() api.Status {
	st := s.worker.Status()
	m := api.Status{
		Timestamp: float64(time.Now().UnixMicro()) / 1e6,
		Ready:     s.isReady(), Saturated: st.Saturated,
		Name: s.opt.Name, MachineProfile: s.opt.MachineProfile, PoolName: s.opt.Pool,
		Bundle: s.opt.Bundle, BundleConfigHash: s.bundleHash(),
		LoadedModels: st.Loaded, MaxBatchRequests: st.MaxBatchRequests, GPUCount: len(st.GPUs), GPUs: st.GPUs, Models: st.Models,
		Server: api.ServerStatus{Version: build.Version, UptimeSeconds: int(time.Since(s.started).Seconds()), PID: os.Getpid()},
	}
	m.Activity = api.Activity{Totals: s.opt.Metrics.Totals(), Running: s.gate.count()}
	m.Activity.MemoryUsedBytes, m.Activity.MemoryTotalBytes = s.worker.HostMemory()
	if u, err := user.Current(); err == nil {
		m.Server.User = u.Username
	}
	m.Server.WorkingDir, _ = os.Getwd()
	return m
}
