package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// fakeProcess is the server and the models of a serving, which note what happens to them. A model
// loads until its context ends, and a request runs for three seconds.
type fakeProcess struct {
	t      *testing.T
	fails  chan error // what Serve returns
	lost   chan struct{}
	mu     sync.Mutex
	events []string
}

func (f *fakeProcess) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, what)
}

func (f *fakeProcess) Serve(net.Listener) error { return <-f.fails }
func (f *fakeProcess) Ready()                   { f.note("ready") }
func (f *fakeProcess) LostC() <-chan struct{}   { return f.lost }
func (f *fakeProcess) Preload(ctx context.Context, id string) error {
	if id == "small" {
		return nil
	}
	f.note("loads " + id)
	<-ctx.Done()
	f.note("stops loading " + id)
	return ctx.Err()
}

func (f *fakeProcess) Shutdown(ctx context.Context) error {
	time.Sleep(time.Nanosecond) // in a bubble: until everything that was told to end has ended
	f.note("drains")
	select {
	case <-ctx.Done():
		return errors.New("a request still ran")
	case <-time.After(3 * time.Second):
	}
	f.note("drained")
	f.fails <- nil
	return nil
}

// However serving ends, preloading stops first. Then running requests finish, and then everything
// is closed, the newest first, each with the time by which all must be over.
func TestTheOrderInWhichServingEnds(t *testing.T) {
	broken := errors.New("accept: broken")
	for name, c := range map[string]struct {
		end     func(f *fakeProcess, signal func())
		drain   time.Duration
		preload []string
		errors  []string
		events  []string
	}{
		"the listener fails while a model loads": {func(f *fakeProcess, _ func()) { f.fails <- broken },
			25 * time.Second, []string{"large"}, []string{"accept: broken"},
			[]string{"loads large", "stops loading large", "drains", "drained", "closes b", "closes a"}},
		"the listener fails, and a request does not end": {func(f *fakeProcess, _ func()) {
			f.fails <- broken
		}, time.Second, []string{"large"}, []string{"accept: broken", "a request still ran"},
			[]string{"loads large", "stops loading large", "drains", "closes b", "closes a"}},
		"the listener fails later": {func(f *fakeProcess, _ func()) { f.fails <- broken }, 25 * time.Second,
			[]string{"small"}, []string{"accept: broken"},
			[]string{"ready", "drains", "drained", "closes b", "closes a"}},
		"a device is lost": {func(f *fakeProcess, _ func()) { close(f.lost) }, 25 * time.Second,
			[]string{"large"}, []string{"device lost"},
			[]string{"loads large", "stops loading large", "drains", "drained", "closes b", "closes a"}},
		"a signal": {func(_ *fakeProcess, signal func()) { signal() }, 25 * time.Second,
			[]string{"small", "large"}, nil,
			[]string{"loads large", "stops loading large", "drains", "drained", "closes b", "closes a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeProcess{t: t, fails: make(chan error, 2), lost: make(chan struct{})}
				s := &serving[*fakeProcess]{
					log:     slog.New(slog.NewTextHandler(&testrig.Log{}, nil)),
					server:  f,
					models:  f,
					preload: c.preload,
					drain:   c.drain,
					ready:   func() {},
				}
				start := time.Now()
				for _, what := range []string{"a", "b"} {
					s.closes(what, func(end time.Time) {
						f.note("closes " + what)
						if want := start.Add(time.Minute + c.drain); end != want {
							t.Errorf("%s should be closed by %v, want %v", what, end, want)
						}
					})
				}
				stop, signal := context.WithCancel(t.Context())
				defer signal()
				go func() {
					time.Sleep(time.Minute)
					c.end(f, signal)
				}()
				err := s.run(stop, nil)
				s.close()
				s.close()      // nothing is closed twice
				f.fails <- nil // Serve returns where Shutdown has not ended it
				var got []string
				if joined, ok := err.(interface{ Unwrap() []error }); ok {
					for _, e := range joined.Unwrap() {
						got = append(got, e.Error())
					}
				} else if err != nil {
					got = []string{err.Error()}
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if !slices.Equal(got, c.errors) || !slices.Equal(f.events, c.events) {
					t.Errorf("errors %q, want %q\nevents %q\n  want %q", got, c.errors, f.events, c.events)
				}
			})
		})
	}
}

// A preload that fails does not keep the server from being ready.
func TestServingIsReadyAfterAFailedPreload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeProcess{t: t, fails: make(chan error, 2), lost: make(chan struct{})}
		log, told := &testrig.Log{}, 0
		s := &serving[failing]{
			log:     slog.New(slog.NewTextHandler(log, nil)),
			server:  f,
			models:  failing{f},
			preload: []string{"gone"},
			drain:   time.Minute,
			ready:   func() { told++ },
		}
		go func() { _ = s.run(t.Context(), nil) }()
		synctest.Wait()
		if f.mu.Lock(); told != 1 || !slices.Equal(f.events, []string{"ready"}) {
			t.Errorf("%d %q", told, f.events)
		}
		f.mu.Unlock()
		close(f.lost)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

// failing is a worker whose models do not load.
type failing struct{ *fakeProcess }

func (failing) Preload(context.Context, string) error { return errors.New("no such model") }

// breaking is a listener whose Accept fails once broken is closed.
type breaking struct {
	net.Listener
	broken chan struct{}
}

func (l *breaking) Accept() (net.Conn, error) {
	type accepted struct {
		c   net.Conn
		err error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := l.Listener.Accept()
		got <- accepted{c, err}
	}()
	select {
	case a := <-got:
		return a.c, a.err
	case <-l.broken:
		return nil, errors.New("accept: broken")
	}
}

// The listener of a real server fails while a model is downloaded, for which a request waits. The
// request is answered with the retryable error, the download ends, and nothing is left over.
func TestListenerFailsWhileAModelLoads(t *testing.T) {
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, a goroutine that stays
	hups := make(chan os.Signal, 1)           // starts the goroutine of os/signal, which stays too
	signal.Notify(hups, syscall.SIGHUP)
	signal.Stop(hups)
	t.Cleanup(testrig.Goroutines(t)) // once the hub is closed
	hub := hubtest.New(t)
	hub.Add("acme/mean", published(t, "st-mean"))
	downloading, ended := make(chan struct{}, 1), make(chan struct{})
	hub.Fault(func(_ http.ResponseWriter, r *http.Request, storage bool) bool {
		if !storage || r.Method != http.MethodGet {
			return false
		}
		downloading <- struct{}{}
		<-r.Context().Done() // until the client of the hub leaves
		close(ended)
		return true
	})
	t.Setenv("HF_ENDPOINT", hub.URL)
	log := &testrig.Log{}
	c := &serveCmd{
		sourceFlags:  sourceFlags{Models: []string{"acme/mean"}, LocalCache: t.TempDir(), HFFallback: true},
		computeFlags: computeFlags{Device: "cpu", Precision: "fp32", Threads: 2},
		batchFlags: batchFlags{
			MaxBatchRequests: 64,
			MaxBatchWait:     15,
			MaxQueued:        2048,
			MemoryPercent:    99,
			MaxLoRAs:         10,
			LoadWait:         time.Hour,
		},
		Preload: []string{"acme/mean"}}
	c.DrainTimeout, c.RequestTimeout = 100*time.Millisecond, time.Hour
	s, err := c.open(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		sie.Secured{})
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.close()
		t.Fatal(err)
	}
	l := &breaking{tcp, make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.run(t.Context(), l) }()
	<-downloading
	answered := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{}}
	go func() {
		resp, err := client.Post("http://"+tcp.Addr().String()+"/v1/encode/acme/mean", "application/json",
			strings.NewReader(`{"items":[{"text":"a"}]}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		answered <- fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Retry-After") != "", " ", resp.Close)
	}()
	testrig.Until(t, "a request waits for the model", func() bool { return s.models.Gate().Running() == 1 })
	close(l.broken)
	err = <-done
	if err == nil || !strings.Contains(err.Error(), "accept: broken") ||
		!strings.Contains(err.Error(), "1 requests still ran") {
		t.Errorf("served with %v", err)
	}
	if got := <-answered; got != "503 true true" {
		t.Errorf("the request that waited: %s", got)
	}
	s.close()
	<-ended
	if n, held := s.models.Gate().Running(), s.models.Gate().Held(); n != 0 || held != 0 {
		t.Errorf("%d requests run, %d bytes are held", n, held)
	}
	text := log.String()
	if first, second := strings.Index(text, "msg=closed what=reloader"),
		strings.Index(text, "msg=closed what=models"); first < 0 || second < first {
		t.Errorf("the order is another:\n%s", text)
	}
	client.CloseIdleConnections()
}
