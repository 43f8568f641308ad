package server

import (
	"encoding/json"
	"os"
	"os/user"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/runtime/worker"
)

const (
	statusInterval = 200 * time.Millisecond
	// statusWrite bounds one send to a slow watcher, who is then dropped.
	statusWrite = 5 * time.Second
)

// statusMessage is one frame of /ws/status, in the reference's shape.
type statusMessage struct {
	Timestamp        float64              `json:"timestamp"` // seconds since 1970
	Ready            bool                 `json:"ready"`
	Saturated        bool                 `json:"saturated"`
	Name             string               `json:"name"`
	MachineProfile   string               `json:"machine_profile"`
	PoolName         string               `json:"pool_name"`
	GPUCount         int                  `json:"gpu_count"`
	Bundle           string               `json:"bundle"`
	BundleConfigHash string               `json:"bundle_config_hash"`
	LoadedModels     []string             `json:"loaded_models"`
	MaxBatchRequests int                  `json:"max_batch_requests"`
	Server           serverStatus         `json:"server"`
	GPUs             []struct{}           `json:"gpus"` // a CPU worker has none
	Models           []worker.ModelStatus `json:"models"`
}

type serverStatus struct {
	Version       string `json:"version"`
	UptimeSeconds int    `json:"uptime_seconds"`
	User          string `json:"user"`
	WorkingDir    string `json:"working_dir"`
	PID           int    `json:"pid"`
}

var upgrader = websocket.FastHTTPUpgrader{
	CheckOrigin:     func(*fasthttp.RequestCtx) bool { return true }, // read-only, and no cookies to misuse
	ReadBufferSize:  1 << 10,
	WriteBufferSize: 16 << 10,
}

// status answers GET /ws/status: a frame at once and one every 200 ms.
func (s *Server) status(ctx *fasthttp.RequestCtx, _ string) {
	if !websocket.FastHTTPIsWebSocketUpgrade(ctx) {
		plain(ctx, 426, "this is a WebSocket route: connect with ws://")
		ctx.Response.Header.Set("Upgrade", "websocket")
		return
	}
	// The upgrader writes its own answer when it refuses.
	_ = upgrader.Upgrade(ctx, s.stream)
}

func (s *Server) stream(c *websocket.Conn) {
	defer c.Close()
	c.SetReadLimit(4 << 10) // watchers send nothing but control frames
	gone := make(chan struct{})
	go func() { // ends when the connection does, which the deferred Close sees to
		defer close(gone)
		for {
			if _, _, err := c.ReadMessage(); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		b, err := json.Marshal(s.statusNow())
		if err != nil {
			return
		}
		_ = c.SetWriteDeadline(time.Now().Add(statusWrite))
		if err := c.WriteMessage(websocket.TextMessage, b); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-gone:
			return
		case <-s.quit:
			_ = c.WriteControl(websocket.CloseMessage,
				websocket.FormatCloseMessage(websocket.CloseGoingAway, "shutting down"), time.Now().Add(time.Second))
			return
		}
	}
}

func (s *Server) statusNow() statusMessage {
	st := s.worker.Status()
	m := statusMessage{
		Timestamp: float64(time.Now().UnixMicro()) / 1e6,
		Ready:     s.isReady(), Saturated: st.Saturated,
		Name: s.opt.Name, MachineProfile: s.opt.MachineProfile, PoolName: s.opt.Pool,
		Bundle: s.opt.Bundle, BundleConfigHash: s.opt.BundleHash,
		LoadedModels: st.Loaded, MaxBatchRequests: st.MaxBatchRequests, GPUs: []struct{}{}, Models: st.Models,
		Server: serverStatus{Version: build.Version, UptimeSeconds: int(time.Since(s.started).Seconds()), PID: os.Getpid()},
	}
	if u, err := user.Current(); err == nil {
		m.Server.User = u.Username
	}
	m.Server.WorkingDir, _ = os.Getwd()
	return m
}
