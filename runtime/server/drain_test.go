package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

const twoTexts = `{"items":[{"text":"the cat"},{"text":"sat"}]}`

// When a client leaves, its queued texts are dropped and the request is counted.
func TestHangUp(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"closes":          func(c *net.TCPConn) { c.Close() },
		"resets":          func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"closes one side": func(c *net.TCPConn) { _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, held(3))
			w := r.dial()
			w.send(getHealth) // each request of a connection is watched anew
			w.receive("GET")
			w.send(post(len(twoTexts)) + twoTexts)
			r.queued(2)
			leave(w.Conn.(*net.TCPConn))
			cancelled := `sie_requests_total{endpoint="encode",model="test/mean",status="cancelled"}`
			testrig.Until(r.t, "it is counted", func() bool { return r.metric(cancelled) == "1" })
			if name == "closes one side" {
				if a := w.receive("POST"); a.status != 400 {
					t.Errorf("%d %s", a.status, a.body)
				}
				w.ended()
			}
			// One more text makes three, so a batch leaves. It holds only the text whose client
			// still waits.
			if a := r.encode(oneText); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
			testrig.Until(r.t, "one text is counted", func() bool { // behind its answer
				return r.metric(`sie_device_batch_items_sum{model="test/mean"}`) == "1"
			})
			if r.load().Watches != 0 {
				t.Error("a watch is left")
			}
		})
	}
}

// A request is not cancelled while its client waits, however long it takes.
func TestRequestTimeout(t *testing.T) {
	r := start(t,
		func(o *Options, w *service.Options) { held(1000)(o, w); w.Admit.Timeout = 100 * time.Millisecond })
	began := time.Now()
	a := r.encode(oneText)
	if e := a.failure(t); a.status != 504 || e.Code != "DEADLINE_EXCEEDED" ||
		!strings.Contains(e.Detail.Message, "100ms") || time.Since(began) < 90*time.Millisecond {
		t.Errorf("%d %s after %v", a.status, a.body, time.Since(began))
	}
	if a := r.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("afterwards %d", a.status)
	}
}

func TestFullQueueIsRetryable(t *testing.T) {
	r := start(t, func(o *Options, w *service.Options) { held(1000)(o, w); w.MaxQueueItems = 3 })
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := r.try(ctx, "POST", encodePath, twoTexts)
		first <- err
	}()
	r.queued(2)
	a := r.encode(twoTexts)
	if a.status != 503 || a.header.Get("Retry-After") != "1" ||
		!strings.Contains(string(a.body), "2 items pending, cannot add 2 more (limit: 3)") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if n := r.metric(
		`sie_requests_total{endpoint="encode",model="test/mean",status="queue_full"}`); n != "1" {
		t.Errorf("counted %q times", n)
	}
	cancel()
	<-first
}

// A request that would wait too long is refused before its body is read, with the code on which its
// client retries.
func TestSlowQueueIsRetryable(t *testing.T) {
	r := start(t,
		func(o *Options, w *service.Options) { held(2)(o, w); w.Batch.MaxBacklog, w.MaxBatchTokens = 1, 1 })
	if a := r.encode(twoTexts); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	testrig.Until(t, "the pace is known",
		func() bool { return r.metric(`sie_device_batch_items_count{model="test/mean"}`) == "1" })
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := r.try(ctx, "POST", encodePath, oneText)
		first <- err
	}()
	r.queued(1)
	for _, body := range []string{oneText, "{"} {
		a := r.encode(body)
		if e := a.failure(t); a.status != 503 || a.header.Get("Retry-After") != "1" ||
			e.Code != "QUEUE_FULL" || e.Detail.Message !=
			"Queue full: what is pending takes longer than 1ns to run, please retry in 1s" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
	}
	if a := r.do("POST", "/v1/embeddings", "{"); a.status != 503 ||
		a.failure(t).Error.Code != "server_overloaded" {
		t.Errorf("embeddings: %d %s", a.status, a.body)
	}
	cancel()
	<-first
}

func TestFullAnswers(t *testing.T) {
	f := prepareFull(10, 5*time.Second)
	for retry, want := range map[time.Duration]string{
		1:                       "retry in 1s",
		time.Second:             "retry in 1s",
		2001 * time.Millisecond: "retry in 3s",
		time.Minute:             "retry in 1m0s",
		time.Hour:               "retry in 1m0s",
		0:                       "cannot add 1 more (limit: 10)",
	} {
		if e := f.refusal(retry, true).Err; !strings.Contains(e.Message, want) {
			t.Errorf("%v: %s", retry, e.Message)
		}
	}
	if f.refusal(time.Second, false) != nil {
		t.Error("an answer where there is room")
	}
}

// A request that a full queue cannot take is refused before its body is read: no body in this test
// could be decoded. The connection stays usable, clients get the code on which they retry, and
// other errors still come first.
func TestFullQueueRefusesAtTheHead(t *testing.T) {
	r := start(t, func(o *Options, w *service.Options) { held(1000)(o, w); w.MaxQueueItems = 2 })
	first := r.dial()
	first.send(post(len(twoTexts)) + twoTexts)
	r.queued(2)

	w := r.dial()
	for _, body := range []string{
		"", "{", strings.Repeat("x", 8<<10), strings.Repeat("x", 8<<10+1), strings.Repeat("x", 300_000),
	} {
		w.send(post(len(body)) + body)
		a := w.receive("POST")
		if e := a.failure(t); a.status != 503 || a.header.Get("Retry-After") != "1" ||
			e.Code != "QUEUE_FULL" ||
			e.Detail.Message != "Queue full: 2 items pending, cannot add 1 more (limit: 2)" {
			t.Errorf("a body of %d bytes: %d %v %s", len(body), a.status, a.header, a.body)
		}
	}
	w.send(strings.Replace(post(0, "Transfer-Encoding: chunked\r\n"), "Content-Length: 0\r\n", "", 1) +
		"3\r\nabc\r\n0\r\n\r\n" + getHealth)
	if a := w.receive("POST"); a.status != 503 {
		t.Errorf("chunked: %d %s", a.status, a.body)
	}
	if a := w.receive("GET"); a.status != 200 {
		t.Errorf("the connection is not usable: %d %s", a.status, a.body)
	}
	if n := r.metric(
		`sie_requests_total{endpoint="encode",model="test/mean",status="queue_full"}`); n != "6" {
		t.Errorf("counted %q times", n)
	}

	if a := r.encode("{", "X-SIE-SDK-Version", "0.6.30"); a.status != 503 ||
		a.failure(t).Code != "PROVISIONING" {
		t.Errorf("an SDK that gives up on QUEUE_FULL: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/v1/embeddings", "{"); a.status != 503 || a.header.Get("Retry-After") != "1" ||
		a.failure(t).Error.Code != "server_overloaded" {
		t.Errorf("embeddings: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/v1/encode/test/maen", "{"); a.status != 400 && a.status != 404 {
		t.Errorf("an unknown model: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/v1/score/"+model, "{"); a.status != 400 {
		t.Errorf("score needs no queue: %d %s", a.status, a.body)
	}
	if a := r.encode("{", "X-SIE-Remote", "x"); a.status != 400 {
		t.Errorf("a wrong header: %d %s", a.status, a.body)
	}
}

// A draining server finishes running requests and refuses new work. It still answers probes, on new
// connections too.
func TestDrain(t *testing.T) {
	r := start(t, held(3))
	running, idle := r.dial(), r.dial()
	idle.send(getHealth)
	idle.receive("GET")
	running.send(post(len(twoTexts)) + twoTexts)
	r.queued(2)
	sending := r.dial() // a request whose body is still being sent does not run yet
	sending.send(post(20_000) + oneText + strings.Repeat(" ", 9000))
	testrig.Until(r.t, "its body is being read", func() bool { return r.load().HeldBytes >= 20_000 })
	done := make(chan error, 1)
	go func() { done <- r.Shutdown(t.Context()) }()
	testrig.Until(r.t, "it drains", r.Server.http.Draining)
	asked := func(w *wire, method, request string) answer { // and the answer ends the connection
		w.send(request + getHealth)
		a := w.receive(method)
		if a.header.Get("Connection") != "close" {
			t.Errorf("%.40q: the connection goes on: %v", request, a.header)
		}
		w.ended()
		return a
	}
	refused := func(a answer) {
		t.Helper()
		if a.status != 503 || a.header.Get("Retry-After") == "" ||
			!strings.Contains(string(a.body), "draining") {
			t.Errorf("new work: %d %v %s", a.status, a.header, a.body)
		}
	}
	refused(asked(idle, "POST", post(len(oneText))+oneText))
	refused(asked(r.dial(), "POST", post(len(oneText))+oneText))
	if a := asked(r.dial(), "GET", "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"); a.status != 503 {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
	if a := asked(r.dial(), "GET", getHealth); a.status != 200 {
		t.Errorf("/healthz: %d %s", a.status, a.body)
	}
	if a := asked(r.dial(), "GET", "GET / HTTP/9\r\n\r\n"); a.status != 400 {
		t.Errorf("a head that cannot be read: %d %s", a.status, a.body)
	}
	sending.send(strings.Repeat(" ", 20_000-9000-len(oneText)))
	if a := sending.receive("POST"); a.status != 503 {
		t.Errorf("a body that ends while draining: %d %s", a.status, a.body)
	}
	w := r.dial()
	w.send(post(len(oneText), "Expect: 100-continue\r\n"))
	if a := w.receive("POST"); a.status != 503 {
		t.Errorf("an announced body: %d %s", a.status, a.body)
	}
	select {
	case err := <-done:
		t.Fatalf("shut down with a request running: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	m, err := r.service.Find(model)
	if err != nil {
		t.Fatal(err)
	}
	// the third text
	if _, err := m.Encode(admit.Unbounded(t.Context()),
		&api.EncodeRequest{Items: []api.Item{{Text: "a", HasText: true}}}); err != nil {
		t.Error(err)
	}
	if a := running.receive("POST"); a.status != 200 || len(a.encoded(t).Items) != 2 {
		t.Errorf("running work: %d %s", a.status, a.body)
	}
	if err := <-done; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

// All entrances drain together. Shutdown waits for a request that came by another entrance, and
// once another entrance has begun to drain, requests over HTTP are refused and end their
// connections.
func TestDrainOfAllEntrances(t *testing.T) {
	r := start(t, nil)
	w, err := r.service.Gate().Enter(admit.Request{})
	if err != nil {
		t.Fatal(err)
	}
	kept := r.dial()
	kept.send(post(len(oneText)) + oneText)
	if a := kept.receive("POST"); a.status != 200 || a.header.Get("Connection") == "close" {
		t.Errorf("before: %d %v", a.status, a.header)
	}
	r.service.Gate().Shut()
	kept.send(post(len(oneText)) + oneText)
	if a := kept.receive("POST"); a.status != 503 || a.header.Get("Retry-After") == "" ||
		a.header.Get("Connection") != "close" || a.failure(t).Code != "DRAINING" {
		t.Errorf("another entrance drains: %d %v %s", a.status, a.header, a.body)
	}
	kept.ended()
	if a := r.encode(oneText, "X-SIE-Remote", "x"); a.status != 503 { // before anything else is checked
		t.Errorf("a request with a wrong header: %d %s", a.status, a.body)
	}
	if a := r.do("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("/readyz: %d", a.status)
	}
	if n := r.metric(`sie_requests_total{endpoint="encode",model="",status="error"}`); n != "2" {
		t.Errorf("the refusals were counted %q times", n)
	}
	done := make(chan error, 1)
	go func() { done <- r.Shutdown(t.Context()) }()
	testrig.Until(t, "the listener is still open",
		func() bool { return r.do("GET", "/healthz", "").status == 200 })
	select {
	case err := <-done:
		t.Fatalf("shut down while another entrance has a request: %v", err)
	default:
	}
	w.End()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A request that has arrived on a kept connection is answered, whenever the server stops. The last
// answer tells the client that the connection ends. Unused connections are closed.
func TestDrainAnswersKeptConnections(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.LastBytes = time.Hour })
	var clients sync.WaitGroup
	served, warm := make([]int, 20), make(chan struct{}, 20)
	for i := range served {
		w := r.dial()
		clients.Go(func() {
			for {
				if _, err := io.WriteString(w, post(len(oneText))+oneText); err != nil {
					t.Errorf("client %d, request %d: %v", i, served[i], err)
					return
				}
				resp, err := http.ReadResponse(w.br, &http.Request{Method: "POST"})
				if err != nil {
					t.Errorf("client %d: request %d was sent and not answered: %v", i, served[i], err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if served[i]++; served[i] == 2 {
					warm <- struct{}{}
				}
				switch {
				case resp.Close:
					return
				case resp.StatusCode != 200:
					t.Errorf("client %d: %d without Connection: close", i, resp.StatusCode)
					return
				}
			}
		})
	}
	idle := r.dial()
	idle.send(getHealth)
	idle.receive("GET")
	for range served {
		<-warm
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil || ctx.Err() != nil {
		t.Error(err, ctx.Err())
	}
	clients.Wait()
	idle.ended()
}

// A request that still runs when the time is up is answered, and nothing runs when Shutdown
// returns.
func TestDrainRunsOutOfTime(t *testing.T) {
	r := start(t, held(1000))
	w := r.dial()
	w.send(post(len(twoTexts)) + twoTexts)
	r.queued(2)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "1 requests still ran") {
		t.Errorf("got %v", err)
	}
	if n := r.load().Running; n != 0 {
		t.Errorf("%d requests run", n)
	}
	if a := w.receive("POST"); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// Clients that send half a request, or nothing, delay the end only for a moment. Clients that wait
// for an answer get one.
func TestDrainDoesNotWaitForSenders(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.LastBytes = 200 * time.Millisecond })
	var senders []*wire
	for _, half := range []string{"", "POST " + encodePath + " HTTP/1.1\r\nHost: x\r\n", post(100) + "{",
		post(200_000) + "{" + strings.Repeat(" ", 100_000)} {
		w := r.dial()
		w.send(half)
		senders = append(senders, w)
	}
	testrig.Until(t, "the large body is being read", func() bool { return r.load().HeldBytes >= 200_000 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil { // it waited for them
		t.Error(err)
	}
	for i, w := range senders {
		if a := w.receive("POST"); a.status != 503 || a.header.Get("Retry-After") == "" ||
			!strings.Contains(string(a.body), "draining") {
			t.Errorf("sender %d: %d %v %s", i, a.status, a.header, a.body)
		}
		w.ended()
	}
}

// A client that reads its answer too slowly is no error of the drain either: nothing runs any more.
func TestDrainDoesNotWaitForReaders(t *testing.T) {
	r := start(t, nil)
	w := r.dial()
	requests := []byte(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100))
	for at, stuck := 0, false; !stuck; { // until the server reads no more
		if err := w.Conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := w.Conn.Write(requests[at:])
		at = (at + n) % len(requests)
		stuck = err != nil && n == 0
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil || !strings.Contains(r.log.String(), "connections=1") {
		t.Errorf("it was not held up: %s", r.log.String())
	}
}

func TestNotReadyAtFirst(t *testing.T) {
	r := start(t, nil)
	r.ready.Store(false)
	if a := r.do("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("%d", a.status)
	}
	if a := r.encode(oneText); a.status != 200 { // asked all the same, it works
		t.Errorf("%d %s", a.status, a.body)
	}
	r.Ready()
	if a := r.do("GET", "/readyz", ""); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	if fmt.Sprint(WorkerName()) == "" {
		t.Error("no worker name")
	}
}
