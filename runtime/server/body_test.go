package server

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

// limited makes a server accept bodies of at most 20,000 bytes.
func limited(o *Options, _ *service.Options) { o.Limits = api.Limits{MaxBodyBytes: 20_000} }

// chunked returns an encode request whose body comes in the given chunks.
func chunked(chunks ...string) string {
	var b strings.Builder
	b.WriteString(strings.Replace(post(0), "Content-Length: 0", "Transfer-Encoding: chunked", 1))
	for _, c := range chunks {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

// After an unreadable chunk nothing more is read, because what follows may be anything, even
// something that looks like a request.
func TestNothingIsReadAfterABadChunk(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.UnwantedTime = time.Hour })
	head := strings.Replace(post(0), "Content-Length: 0", "Transfer-Encoding: chunked", 1)
	for name, body := range map[string]string{
		"longer than it says":  "5\r\nabcdefg\r\n0\r\n\r\n" + getHealth,
		"an end of its own":    "5\r\nabcde\n0\r\n\r\n" + getHealth,
		"a size with a prefix": "0x2\r\n{}\r\n0\r\n\r\n" + getHealth,
		"a bad trailer":        "2\r\n{}\r\n0\r\n\x00:\r\n\r\n" + getHealth,
		"a huge size":          "fffffffffffffffff\r\n{}\r\n0\r\n\r\n" + getHealth,
	} {
		for _, to := range []string{head, strings.Replace(head, encodePath, "/v1/nothing", 1),
			strings.Replace(head, "POST "+encodePath, "GET /healthz", 1)} {
			w := r.dial()
			w.send(to + body)
			want := map[string]int{"POST /v1/e": 400, "POST /v1/n": 404, "GET /healt": 200}[to[:10]]
			if a := w.receive("POST"); a.status != want || a.header.Get("Connection") != "close" {
				t.Errorf("%s, %.20q: %d %v %s", name, to, a.status, a.header, a.body)
			}
			w.ended()
		}
	}
}

// A body that does not come does not hold a connection on an open route or without a key. The time
// limits that must not decide here are longer than the test.
func TestUnwantedBodiesThatStall(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.Keys, o.BodyStall, o.BodyTimeout, o.UnwantedTime, o.BriefTime = guarded(t, "key"), time.Hour,
			time.Hour, time.Hour, 50*time.Millisecond
	})
	stalled := "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
	for _, c := range []struct {
		line   string
		status int
	}{
		{"GET /healthz HTTP/1.1\r\n", 200}, {"GET /v1/models HTTP/1.1\r\nX-API-Key: key\r\n", 200},
		{"POST " + encodePath + " HTTP/1.1\r\n", 401}, {"POST /v1/nothing HTTP/1.1\r\n", 401},
		{"POST /v1/nothing HTTP/1.1\r\nX-API-Key: key\r\n", 404}, {"POST /%zz HTTP/1.1\r\n", 400},
	} {
		w := r.dial()
		w.send(c.line + stalled)
		if a := w.receive("POST"); a.status != c.status || a.header.Get("Connection") != "close" {
			t.Errorf("%q: %d %v %s", c.line, a.status, a.header, a.body)
		}
		w.ended()
	}
	w := r.dial() // a body that nobody read is not taken for the next request
	w.send("POST /%zz HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(getHealth)) + "\r\n\r\n" +
		getHealth + getHealth)
	if a := w.receive("POST"); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.receive("GET"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	w.receive("GET")
	w.ended()
}

// The rest of a body is never taken for the next request, whatever is wrong with the body.
func TestBodiesOfAnySize(t *testing.T) {
	r := start(t, limited)
	evil := strings.Repeat("GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n", 2000)
	padded := oneText + strings.Repeat(" ", 19_000)
	for name, c := range map[string]struct {
		send   string
		status int
		text   string
	}{
		"small":              {post(len(oneText)) + oneText, 200, ""},
		"close to the limit": {post(len(padded)) + padded, 200, ""},
		"declared too large": {post(len(evil)) + evil, 413, "exceeds the limit of 20000 bytes"},
		"chunked":            {chunked(oneText[:10], oneText[10:]), 200, ""},
		"chunked too large":  {chunked(evil[:30_000], evil), 413, "exceeds the limit of 20000 bytes"},
		"of a GET": {"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(evil)) +
			"\r\n\r\n" + evil, 200, ""},
		"of an unknown path": {strings.Replace(post(len(evil)), encodePath, "/v1/nothing", 1) + evil, 404,
			"Not Found"},
		"refused by headers": {post(len(evil), "X-SIE-Remote: x\r\n") + evil, 400, "only 'forbid'"},
		"empty":              {post(0), 400, "truncated"},
	} {
		w := r.dial()
		w.send(c.send + getHealth)
		a := w.receive("POST")
		if a.status != c.status || c.text != "" && !strings.Contains(a.failure(t).Detail.Message, c.text) {
			t.Errorf("%s: %d %.200q, want %d, %q", name, a.status, a.body, c.status, c.text)
		}
		if a.header.Get("Connection") == "close" {
			w.ended()
			t.Errorf("%s: the connection is closed although the whole body came", name)
		} else if a := w.receive("GET"); a.status != 200 || string(a.body) != "ok" {
			t.Errorf("%s: the next request gets %d %.100q", name, a.status, a.body)
		}
	}
	for name, send := range map[string]string{
		"bad chunk size": strings.Replace(chunked(), "0\r\n\r\n",
			"zz\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 1),
		"bad chunk end": strings.Replace(chunked("{}"), "{}\r\n", "{}xx"+getHealth, 1),
	} {
		w := r.dial()
		w.send(send)
		if a := w.receive("POST"); a.status != 400 || a.header.Get("Connection") != "close" {
			t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
		}
	}
	for name, send := range map[string]string{
		"cut off within its first bytes": post(5000) + oneText,
		"cut off later":                  post(15_000) + oneText + strings.Repeat(" ", 10_000),
	} {
		w := r.dial()
		w.send(send)
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		if a := w.receive("POST"); a.status != 400 ||
			name == "cut off later" && !strings.Contains(string(a.body), "ended early") {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		w.ended()
	}
	testrig.Until(r.t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
}

func TestSlowBodies(t *testing.T) {
	for name, trickle := range map[string]bool{"stalls": false, "trickles": true} {
		r := start(t, func(o *Options, w *service.Options) {
			limited(o, w)
			o.BodyStall, o.BodyTimeout, o.UnwantedTime = 150*time.Millisecond, time.Hour, time.Hour
			if trickle {
				o.BodyStall, o.BodyTimeout = time.Hour, 500*time.Millisecond
			}
		})
		w := r.dial()
		w.send(post(20_000) + strings.Repeat(" ", 10_000))
		began := time.Now()
		quit, sent := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(sent)
			for trickle {
				select {
				case <-quit:
					return
				case <-time.After(30 * time.Millisecond):
					_, _ = w.Write([]byte(" "))
				}
			}
		}()
		a := w.receive("POST")
		close(quit)
		<-sent
		took := time.Since(began)
		words := "no more than 150ms between two pieces and 1h0m0s in all"
		if trickle {
			words = "no more than 1h0m0s between two pieces and 500ms in all"
		}
		if a.status != 400 || !strings.Contains(a.failure(t).Detail.Message, words) ||
			a.header.Get("Connection") != "close" || trickle && took < 400*time.Millisecond {
			t.Errorf("a sender that %s: %d %s after %v", name, a.status, a.body, took)
		}
	}
	r := start(t, func(o *Options, w *service.Options) {
		limited(o, w)
		o.BodyStall, o.BodyTimeout, o.UnwantedTime = 150*time.Millisecond, 500*time.Millisecond, time.Hour
	})
	first := r.dial() // no byte of a body: the time for a pause runs out, not the time for a head
	first.send(post(9))
	if a := first.receive("POST"); a.status != 408 || a.header.Get("Connection") != "close" {
		t.Errorf("a body that does not begin: %d %v %s", a.status, a.header, a.body)
	}
	// refused for its declared length; no room is held for it, and draining it is bounded by a
	// body's time
	w := r.dial()
	w.send(post(1<<40) + oneText + strings.Repeat(" ", 9000))
	if a := w.receive("POST"); a.status != 413 || a.header.Get("Connection") != "close" {
		t.Errorf("a body of a terabyte: %d %v %s", a.status, a.header, a.body)
	}
	w = start(t, nil).dial() // slow, but within the bounds
	body := oneText + strings.Repeat(" ", 9000)
	w.send(post(len(body)) + body[:8500])
	time.Sleep(50 * time.Millisecond)
	w.send(body[8500:])
	if a := w.receive("POST"); a.status != 200 {
		t.Errorf("a slow sender within the limits: %d %s", a.status, a.body)
	}
}

func TestBodiesHeldTogether(t *testing.T) {
	r := start(t, func(o *Options, w *service.Options) {
		w.Admit.MaxHeldBytes, o.Limits = 30_000, api.Limits{MaxBodyBytes: 25_000}
	})
	endless := r.dial() // refused once it is too large, before it takes the room of others
	endless.send(chunked(strings.Repeat(" ", 50_000), strings.Repeat(" ", 50_000)))
	if a := endless.receive("POST"); a.status != 413 {
		t.Errorf("a body of unknown length: %d %s", a.status, a.body)
	}
	w := r.dial()
	w.send(post(20_000) + oneText + strings.Repeat(" ", 9000))
	testrig.Until(r.t, "the first body is being read", func() bool { return r.load().HeldBytes == 20_000 })
	large := oneText + strings.Repeat(" ", 15_000)
	a := r.encode(large)
	if e := a.failure(t); a.status != 503 || a.header.Get("Retry-After") == "" ||
		!strings.Contains(e.Detail.Message, "20000 bytes pending, cannot add 15030 more (limit: 30000)") {
		t.Errorf("a body too many: %d %v %s", a.status, a.header, a.body)
	}
	c := r.dial()
	c.send(chunked(oneText, strings.Repeat(" ", 15_000)))
	if a := c.receive("POST"); a.status != 503 {
		t.Errorf("a body of unknown length too many: %d %s", a.status, a.body)
	}
	if a := r.encode(oneText); a.status != 200 {
		t.Errorf("a body that fits: %d %s", a.status, a.body)
	}
	w.send(strings.Repeat(" ", 20_000-9000-len(oneText)))
	if a := w.receive("POST"); a.status != 200 {
		t.Errorf("the first body: %d %s", a.status, a.body)
	}
	if a := r.encode(large); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

func TestExpectContinue(t *testing.T) {
	r := start(t, limited)
	w := r.dial()
	w.send(post(len(oneText), "Expect: 100-continue\r\n"))
	line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := w.br.Read(line); err != nil || !strings.HasPrefix(string(line), "HTTP/1.1 100 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	w.send(oneText)
	if a := w.receive("POST"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	w = r.dial()
	w.send(post(30_000, "Expect: 100-continue\r\n"))
	if a := w.receive("POST"); a.status != 413 || a.failure(t).Code != "INPUT_TOO_LONG" ||
		a.header.Get("Connection") != "close" {
		t.Errorf("a body that is announced and too large: %d %v %s", a.status, a.header, a.body)
	}
	w.ended()
}

func TestConnectionsTooMany(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.MaxConns = 2 })
	first, second := r.dial(), r.dial()
	for _, w := range []*wire{first, second} {
		w.send(getHealth)
		w.receive("GET")
	}
	third := r.dial()
	third.send(post(len(oneText)) + oneText)
	a := third.receive("POST")
	if e := a.failure(t); a.status != 503 || a.header.Get("Retry-After") == "" ||
		!strings.Contains(e.Detail.Message, "2 open connections") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	third.ended()
	first.Close()
	testrig.Until(r.t, "a connection is free", func() bool {
		w := r.dial()
		defer w.Close()
		w.send(getHealth)
		return w.receive("GET").status == 200
	})
	second.send(getHealth)
	if a := second.receive("GET"); a.status != 200 {
		t.Errorf("an old connection: %d", a.status)
	}
}
