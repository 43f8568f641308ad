package server

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

func (r *rig) watch() *websocket.Conn {
	r.t.Helper()
	c, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws/status", nil)
	if err != nil {
		r.t.Fatal(err, resp)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return c
}

func TestStatusFrames(t *testing.T) {
	r := start(t,
		func(o *Options, _ *service.Options) { o.MachineProfile, o.Pool, o.BundleHash = "l4", "pool", "abc" })
	c := r.watch()
	var last float64
	var frame map[string]any
	for range 6 {
		if err := c.ReadJSON(&frame); err != nil {
			t.Fatal(err)
		}
		at := frame["timestamp"].(float64)
		if at <= last {
			t.Errorf("a frame of %v after one of %v", at, last)
		}
		last = at
	}
	want := []string{
		"activity", "bundle", "bundle_config_hash", "gpu_count", "gpus", "loaded_models", "machine_profile",
		"max_batch_requests", "models", "name", "pool_name", "ready", "saturated", "server", "timestamp",
	}
	if got := slices.Sorted(maps.Keys(frame)); !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	for key, want := range map[string]any{
		"ready": true, "saturated": false, "name": "w1", "machine_profile": "l4", "pool_name": "pool",
		"bundle": "default", "bundle_config_hash": "abc", "gpu_count": 0.0, "max_batch_requests": 64.0,
	} {
		if frame[key] != want {
			t.Errorf("%s is %v, want %v", key, frame[key], want)
		}
	}
	if m := frame["models"].([]any); len(m) != 3 || frame["loaded_models"].([]any)[0] != model ||
		frame["gpus"].([]any) == nil {
		t.Errorf("models %v, loaded %v, gpus %v", m, frame["loaded_models"], frame["gpus"])
	}
	got := slices.Sorted(maps.Keys(frame["models"].([]any)[0].(map[string]any)))
	if want := []string{
		"adaptive_batching", "config", "device", "memory_bytes", "name", "queue_depth", "queue_pending_items",
		"state",
	}; !slices.Equal(got, want) {
		t.Errorf("keys of a model %v, want %v", got, want)
	}
	got = slices.Sorted(maps.Keys(frame["server"].(map[string]any)))
	if want := []string{"pid", "uptime_seconds", "user", "version", "working_dir"}; !slices.Equal(got, want) {
		t.Errorf("keys of the server %v, want %v", got, want)
	}
	r.SetBundleHash("def") // the catalog changed
	for range 10 {
		if err := c.ReadJSON(&frame); err != nil || frame["bundle_config_hash"] == "def" {
			break
		}
	}
	if frame["bundle_config_hash"] != "def" {
		t.Errorf("the bundle's hash is still %v", frame["bundle_config_hash"])
	}
}

func TestStatusEndsWithTheServer(t *testing.T) {
	r := start(t, nil)
	c := r.watch()
	var frame api.Status
	if err := c.ReadJSON(&frame); err != nil || !frame.Ready {
		t.Fatalf("ready %v, %v", frame.Ready, err)
	}
	if err := r.Shutdown(t.Context()); err != nil { // if a watcher held it up, it would do so for ever
		t.Fatal(err)
	}
	var err error
	for err == nil {
		var b []byte
		if _, b, err = c.ReadMessage(); err == nil {
			if err := json.Unmarshal(b, &frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !websocket.IsCloseError(err, websocket.CloseGoingAway) || frame.Ready {
		t.Errorf("the last frame says ready %v; then %v", frame.Ready, err)
	}
}

func TestWatchersThatLeaveOrDoNotRead(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.StatusInterval, o.StatusTimeout = time.Millisecond, 100*time.Millisecond
	})
	gone := func() bool { return r.Server.watch.Watchers() == 0 }
	for name, leave := range map[string]func(c *websocket.Conn){
		"closes": func(c *websocket.Conn) { c.Close() },
		"says good-bye": func(c *websocket.Conn) {
			_ = c.WriteControl(websocket.CloseMessage, nil, time.Now().Add(time.Second))
		},
		"sends too much": func(c *websocket.Conn) {
			_ = c.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", 10_000)))
		},
		"never reads": func(*websocket.Conn) {},
	} {
		d := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(4 << 10)
			}
			return c, err
		}}
		c, _, err := d.Dial("ws://"+r.addr+"/ws/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		testrig.Until(r.t, "there is a watcher", func() bool { return !gone() })
		leave(c)
		testrig.Until(r.t, "the watcher that "+name+" is dropped", gone)
		c.Close()
	}
	c := r.watch()
	_ = c.WriteMessage(websocket.TextMessage, []byte("hello")) // ignored
	_ = c.WriteControl(websocket.PingMessage, []byte("x"), time.Now().Add(time.Second))
	pong := make(chan string, 1)
	c.SetPongHandler(func(s string) error { pong <- s; return nil })
	for len(pong) == 0 {
		if _, _, err := c.ReadMessage(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatusIsBounded(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.MaxWatchers = 2 })
	r.watch()
	second := r.watch()
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws/status", nil)
	if !errors.Is(err, websocket.ErrBadHandshake) || resp.StatusCode != 503 ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("a watcher too many: %v, %+v", err, resp)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr+"/ws/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "99",
	} {
		req.Header.Set(k, v)
	}
	second.Close()
	watching := r.Server.watch.Watchers
	testrig.Until(r.t, "one watcher is left", func() bool { return watching() == 1 })
	resp, err = r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("a handshake that is wrong: %d", resp.StatusCode)
	}
	if n := watching(); n != 1 {
		t.Errorf("%d watchers", n)
	}
}
