package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A node of the tests is this test binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == NodeCommand {
		if err := (&NodeCmd{Config: os.Args[2]}).Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func startNodes(t *testing.T, n int, d Disk) *Nodes {
	t.Helper()
	s, err := StartNodes(t.Context(), t.TempDir(), n, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect returns a connection by way of the proxies, which notices silence soon.
func connect(t *testing.T, url, name string) *nats.Conn {
	t.Helper()
	c, err := nats.Connect(url, nats.Name(name), nats.PingInterval(100*time.Millisecond),
		nats.MaxPingsOutstanding(2), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A killed node is started again in another process, and a stream in files is there again.
func TestAKilledNodeComesBack(t *testing.T) {
	s := startNodes(t, 1, Disk{})
	js, err := jetstream.New(connect(t, s.URL(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S",
		Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	old, err := s.PID(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Back(t.Context(), []int{old}); err != nil {
		t.Fatal(err)
	}
	js2, err := jetstream.New(connect(t, s.Direct(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js2.Stream(t.Context(), "S"); err != nil {
		t.Errorf("the stream: %v", err)
	}
}

// Three nodes hold a stream with three replicas while one of them is frozen.
func TestThreeNodesAreACluster(t *testing.T) {
	s := startNodes(t, 3, Disk{})
	js, err := jetstream.New(connect(t, s.URL(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Replicas: 3, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(0, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for sent := false; !sent; {
		few, stop := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(few, "s.a", []byte("x"))
		stop()
		if sent = err == nil; !sent && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := s.Signal(0, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(ctx); err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A proxy cuts off the components of a name, and no others; they come back when it ends.
func TestAPartitionCutsOneKindOfComponentOff(t *testing.T) {
	s := startNodes(t, 1, Disk{})
	gone := make(chan struct{}, 1)
	side := connect(t, s.URL(), "sie-sidecar w0")
	side.SetDisconnectErrHandler(func(*nats.Conn, error) { gone <- struct{}{} })
	back := make(chan struct{}, 1)
	side.SetReconnectHandler(func(*nats.Conn) { back <- struct{}{} })
	edge := connect(t, s.URL(), "sie-gateway g0")
	s.Proxies[0].Set("sie-sidecar", Weather{Cut: true})
	<-gone
	if err := edge.FlushTimeout(10 * time.Second); err != nil {
		t.Errorf("another component: %v", err)
	}
	if err := side.FlushTimeout(200 * time.Millisecond); err == nil {
		t.Error("the component that was cut off reaches the broker")
	}
	s.Proxies[0].Set("sie-sidecar", Weather{})
	<-back
	if err := side.FlushTimeout(10 * time.Second); err != nil {
		t.Errorf("after the partition: %v", err)
	}
	s.Proxies[0].Set("", Weather{Cut: true}) // whatever was set and ended before
	for _, c := range []*nats.Conn{side, edge} {
		if err := c.FlushTimeout(200 * time.Millisecond); err == nil {
			t.Errorf("%s reaches the broker though all are cut off", c.Opts.Name)
		}
	}
}

// short is a listener that has no file for a connection at first.
type short struct {
	net.Listener
	fails atomic.Int32
}

func (l *short) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// A shortage of files holds a proxy up and does not end it: a cluster behind it would be cut off
// for the rest of a run, with no weather that says so.
func TestAProxyOutlivesAShortageOfFiles(t *testing.T) {
	broker, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	go func() {
		for c, err := broker.Accept(); err == nil; c, err = broker.Accept() {
			fmt.Fprint(c, "INFO {}\r\n")
			defer c.Close()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &short{Listener: l}
	s.fails.Store(2)
	p := serve(s, broker.Addr().String())
	defer p.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if text, err := bufio.NewReader(c).ReadString('\n'); err != nil || text != "INFO {}\r\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A delay holds for each direction, and bytes stay in order.
func TestASlowNetworkDelaysAndKeepsTheOrder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a broker that says INFO, then repeats each line; ends with its connection
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "INFO {}\r\n")
		_, _ = io.Copy(c, c)
	}()
	p, err := StartProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const delay = 50 * time.Millisecond
	p.Set("slow", Weather{Delay: delay, Loss: 0.5})
	c, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	fmt.Fprint(c, "CONNECT {\"name\":\"slow one\"}\r\n")
	for i := range 20 {
		fmt.Fprintf(c, "%d\n", i)
	}
	if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "CONNECT") {
		t.Fatal(line, err)
	}
	if d := time.Since(begin); d < 2*delay {
		t.Errorf("there and back took %v, less than twice %v", d, delay)
	}
	for i := range 20 {
		if line, err := br.ReadString('\n'); err != nil || line != fmt.Sprintf("%d\n", i) {
			t.Fatalf("line %d is %q: %v", i, line, err)
		}
	}
}

// A disk of its own is full when it was filled, and has room afterwards.
func TestADiskIsFilledAndEmptied(t *testing.T) {
	s := startNodes(t, 1, Disk{Tmpfs: "4m"})
	empty, err := s.FillDisk(0)
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.Path(0, "more")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to the full disk: %v", err)
	}
	if err := empty(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Errorf("a write afterwards: %v", err)
	}
}

// Each thing that grew is named; what a new process holds is compared with nothing.
func TestWhatGrewIsNamed(t *testing.T) {
	base := func() Held {
		return Held{Streams: 1, Consumers: 3, TempFiles: 2, Processes: map[string]Process{
			"gateway/0": {PID: 1, Descriptors: 20, Memory: 50 << 20, Goroutines: 40},
		}}
	}
	set := func(f func(*Process)) func(*Held) {
		return func(h *Held) {
			p := h.Processes["gateway/0"]
			f(&p)
			h.Processes["gateway/0"] = p
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Held)
		want   string
	}{
		{"nothing", func(*Held) {}, ""},
		{"descriptors", set(func(p *Process) { p.Descriptors += moreDescriptors + 1 }),
			"45 descriptors, 20 before"},
		{"goroutines", set(func(p *Process) { p.Goroutines += moreGoroutines + 1 }), "goroutines"},
		{"memory", set(func(p *Process) { p.Memory += moreMemory + 1 }), "memory"},
		{"within the bounds", set(func(p *Process) { p.Memory += moreMemory }), ""},
		{"a new process", set(func(p *Process) { p.PID, p.Goroutines = 2, 1000 }), ""},
		{"consumers of new models", func(h *Held) { h.Consumers = 99 }, "99 consumers"},
		{"a consumer", func(h *Held) { h.Consumers++ }, "4 consumers"},
		{"a stream less", func(h *Held) { h.Streams-- }, "0 streams"},
		{"a message", func(h *Held) { h.Messages = 1 }, "1 messages"},
		{"a file", func(h *Held) { h.TempFiles++ }, "3 temporary files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := base(), base()
			c.change(&b)
			got := strings.Join(b.Grown(&a), "; ")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A metric is the sum of its series, or of those with a label; a page without it is an error.
func TestMetric(t *testing.T) {
	page := "# HELP a_total x\na_total{s=\"x\"} 3\na_total{s=\"y\"} 4\na_total_more 100\nb 2.5e3\nbad x\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, page)
	}))
	defer s.Close()
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
		err    bool
	}{
		{"a_total", nil, 7, false},
		{"a_total", []string{`s="x"`}, 3, false},
		{"a_total", []string{`s="z"`}, 0, false},
		{"b", nil, 2500, false},
		{"c", nil, 0, true},
		{"bad", nil, 0, true},
	} {
		if got, err := Metric(s.URL, c.name, c.labels...); got != c.want || (err != nil) != c.err {
			t.Errorf("%s %v: %v, %v", c.name, c.labels, got, err)
		}
	}
}
