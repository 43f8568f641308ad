package main

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
)

// Two frames of a server that did 10 requests and 400 tokens in the half second between them.
const firstFrame = `{"timestamp":100,"ready":true,"name":"w\u001b[2J1","server":{"version":"9.9","uptime_seconds":3700},"gpus":[],
 "models":[{"name":"idle/model","state":"available","memory_bytes":0,"queue_pending_items":0},
  {"name":"org/model","state":"loaded","memory_bytes":2147483648,"queue_pending_items":3,"adaptive_batching":{"p50_ms":1.5,"wait_ms":2}}],
 "activity":{"requests":5,"failed":1,"tokens":100,"batches":2,"batch_items":4,"busy_seconds":1,"running":2,"memory_used_bytes":1073741824,"memory_total_bytes":4294967296}}`

func secondFrame() string {
	return strings.NewReplacer(`"timestamp":100`, `"timestamp":100.5`, `"requests":5`, `"requests":15`,
		`"tokens":100`, `"tokens":500`, `"batches":2`, `"batches":4`, `"batch_items":4`, `"batch_items":10`,
		`"busy_seconds":1`, `"busy_seconds":1.25`).Replace(firstFrame)
}

func read(t *testing.T, s string) *api.Status {
	t.Helper()
	f := &api.Status{}
	if err := json.Unmarshal([]byte(s), f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestBoard(t *testing.T) {
	b := &board{}
	if got := b.render(80, 24, false); got != "waiting for the server" {
		t.Errorf("%q", got)
	}
	b.add(read(t, firstFrame))
	b.add(read(t, secondFrame()))
	got := b.render(120, 24, false)
	for _, want := range []string{
		"SIE 9.9  ready  w?[2J1  up 1 h 1 min", "memory 1.0 GiB of 4.0 GiB  running 2  failed 1",
		"device busy  50 %  items a batch 3.0", "requests/s       20.0 █", "tokens/s        800.0 █",
		"queued            3.0 █",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the board lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a server's name may move the cursor")
	}
	if loaded, idle := strings.Index(got, "org/model"), strings.Index(got, "idle/model"); loaded < 0 ||
		idle < loaded {
		t.Errorf("loaded models come first:\n%s", got)
	}
	if !strings.Contains(got, "loaded        2.0 GiB       3       1.5       2.0") {
		t.Errorf("the model's line:\n%s", got)
	}
	// The board fits a terminal of any size.
	for _, w := range []int{1, 10, 40, 300} {
		for _, h := range []int{1, 5, 9, 50} {
			lines := strings.Split(b.render(w, h, true), "\n")
			if len(lines) > h {
				t.Errorf("%d lines on %d", len(lines), h)
			}
			for _, l := range lines {
				plain := l
				for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m"} {
					plain = strings.ReplaceAll(plain, code, "")
				}
				if utf8.RuneCountInString(plain) > w || strings.Contains(plain, "\x1b") {
					t.Errorf("%d columns on %d: %q", utf8.RuneCountInString(plain), w, l)
				}
				if strings.Contains(l, "\x1b") && !strings.HasSuffix(strings.TrimRight(l, " "), "\x1b[0m") &&
					strings.LastIndex(l, "\x1b[0m") < strings.LastIndex(l, "\x1b[3") {
					t.Errorf("a colour runs on: %q", l)
				}
			}
		}
	}
	if got := b.render(120, 10, false); !strings.HasSuffix(got, "… 2 more") {
		t.Errorf("it does not say what is left out:\n%s", got)
	}
}

// The server of this test speaks the real protocol: it wants a key, sends frames and shuts down.
func TestTop(t *testing.T) {
	up := websocket.FastHTTPUpgrader{}
	var s fasthttp.Server
	s.Handler = func(ctx *fasthttp.RequestCtx) {
		if string(ctx.Request.Header.Peek("Authorization")) != "Bearer k" ||
			string(ctx.Path()) != "/ws/status" {
			ctx.SetStatusCode(401)
			return
		}
		_ = up.Upgrade(ctx, func(c *websocket.Conn) {
			for _, f := range []string{firstFrame, secondFrame()} {
				_ = c.WriteMessage(websocket.TextMessage, []byte(f))
			}
			_ = c.WriteControl(websocket.CloseMessage,
				websocket.FormatCloseMessage(websocket.CloseGoingAway, ""), time.Now().Add(time.Second))
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown() })
	c := topCmd{URL: "http://" + l.Addr().String() + "/"}
	if _, err := c.dial(t.Context()); err == nil || !strings.Contains(err.Error(), "--api-key") {
		t.Errorf("without a key: %v", err)
	}
	c.APIKey = "k"
	conn, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := c.once(conn, &out); err != nil || !strings.Contains(out.String(), "requests/s       20.0") {
		t.Errorf("%v\n%s", err, out.String())
	}
	conn.Close()
	if conn, err = c.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	drawn := 0
	if err := c.follow(t.Context(), conn, func(*board) { drawn++ }); err == nil ||
		!strings.Contains(err.Error(), "shut down") || drawn != 1 {
		t.Errorf("a server that goes: %v, drawn %d times", err, drawn)
	}
	conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err = c.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.follow(ctx, conn, func(*board) {}); err != nil {
		t.Errorf("q: %v", err)
	}
	conn.Close()
	c.URL = "http://127.0.0.1:1"
	if _, err := c.dial(t.Context()); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("nobody there: %v", err)
	}
}
