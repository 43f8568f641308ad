package httpd

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/sie-engine/sie/internal/testrig"
)

// watching returns a rig with a feed of numbers at /feed.
func watching(t *testing.T, opt FeedOptions) (*rig, *Feed) {
	r := start(t, Options{})
	var n atomic.Int64 // when the server ends, each watcher makes a frame of its own
	opt.Frame = func() ([]byte, error) { return strconv.AppendInt(nil, n.Add(1), 10), nil }
	f := r.NewFeed(opt)
	r.routes = append(r.routes, Route{Method: "GET", Path: "/feed", Serve: f.Serve})
	return r, f
}

func (r *rig) watch() *websocket.Conn {
	r.t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/feed", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

func read(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_, b, err := c.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A frame is made once for all watchers.
func TestFramesAreShared(t *testing.T) {
	r, f := watching(t, FeedOptions{Interval: time.Hour})
	for i := range 8 {
		if got := read(t, r.watch()); got != "1" {
			t.Errorf("watcher %d gets frame %s", i, got)
		}
	}
	if n := f.built.Load(); n != 1 {
		t.Errorf("%d frames were made for 8 watchers", n)
	}
	f.building.Lock() // the next frame is being made: no watcher waits for it
	f.latest.Load().made = time.Now().Add(-time.Hour)
	if got := read(t, r.watch()); got != "1" {
		t.Errorf("while a frame is made: %s", got)
	}
	f.building.Unlock()
	if got := read(t, r.watch()); got != "2" {
		t.Errorf("then: %s", got)
	}
}

// The number of watchers is bounded, and Shutdown ends them after one last frame.
func TestFeedEndsWithTheServer(t *testing.T) {
	r, f := watching(t, FeedOptions{Interval: time.Hour, MaxWatchers: 1})
	c := r.watch()
	read(t, c)
	if _, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/feed", nil); err == nil ||
		resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a watcher too many: %v", err)
	}
	if a := r.do("GET", "/feed", ""); a.status != 426 {
		t.Errorf("no WebSocket: %d", a.status)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c); got != "2" {
		t.Errorf("the last frame is %s", got)
	}
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("then %v", err)
	}
	if f.Watchers() != 0 {
		t.Error("a watcher is left")
	}
}

// A watcher that leaves makes room for the next.
func TestWatchersLeave(t *testing.T) {
	r, f := watching(t,
		FeedOptions{Interval: time.Millisecond, WriteTimeout: 100 * time.Millisecond, MaxWatchers: 1})
	for range 3 {
		c := r.watch()
		read(t, c)
		c.Close()
		testrig.Until(t, "it has left", func() bool { return f.Watchers() == 0 })
	}
}

// deaf accepts connections to which nothing can be written: their peers have left.
type deaf struct{ net.Listener }

func (l deaf) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return deafConn{c}, err
}

type deafConn struct{ net.Conn }

func (deafConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A watcher that has left before its answer is written has no place any more: the feed never gets
// its connection.
func TestWatcherLeavesBeforeItsAnswer(t *testing.T) {
	r, f := watching(t, FeedOptions{Interval: time.Hour, MaxWatchers: 1})
	c, err := net.Dial("tcp", r.listen(func(l net.Listener) net.Listener { return deaf{l} }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.WriteString(c, "GET /feed HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Fatalf("%q, %v", b, err)
	}
	testrig.Until(t, "its place is free", func() bool { return f.Watchers() == 0 })
	read(t, r.watch())
}
