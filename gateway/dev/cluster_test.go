package dev

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// patience bounds what a test waits for; it is not a measure.
const patience = 2 * time.Minute

// bin returns a directory with this test's binary under the names of the programs.
func bin(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range append([]string{"cluster"}, programs...) {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ports returns the first of a range of ports that are free.
func ports(t *testing.T) int {
	t.Helper()
	for port := 20000; port < 30000; port += lastOffset + 1 {
		o := options("", "", port)
		o.NATSNodes, o.Workers = 3, 4
		if o.checkPorts() == nil {
			return port
		}
	}
	t.Fatal("no ports are free")
	return 0
}

// shortDir returns a directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// testCluster is a cluster that runs in a goroutine, or in a process of its own.
type testCluster struct {
	t     *testing.T
	dir   string
	ends  string // file of the roles that ended in order
	watch *fsnotify.Watcher
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: shortDir(t), ends: filepath.Join(t.TempDir(), "ends")}
	t.Setenv("SIE_TEST_ENDS", c.ends)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if err := w.Add(c.dir); err != nil {
		t.Fatal(err)
	}
	c.watch = w
	return c
}

// state returns what cluster.json says.
func (c *testCluster) state() (s State) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, stateFile))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// await returns the first state that is as wanted; it looks again whenever the file changes.
func (c *testCluster) await(what string, as func(State) bool) State {
	c.t.Helper()
	over := time.After(patience)
	for {
		if _, err := os.Stat(filepath.Join(c.dir, stateFile)); err == nil {
			if s := c.state(); as(s) {
				return s
			}
		}
		select {
		case <-c.watch.Events:
		case <-over:
			c.t.Fatalf("%s did not come", what)
		}
	}
}

// run runs a cluster in this process and returns what ends it and gives its error.
func (c *testCluster) run(o Options) (stop func() error) {
	c.t.Helper()
	cluster, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Run(ctx, context.Background()) }()
	over := false
	stop = func() error {
		if over {
			return nil
		}
		over = true
		cancel()
		return <-ended
	}
	c.t.Cleanup(func() { _ = stop() })
	select { // the state file, or an early end
	case err := <-ended:
		over = true
		c.t.Fatal(err)
	case <-c.first():
	}
	return stop
}

// first returns a channel that is closed when cluster.json is there.
func (c *testCluster) first() <-chan struct{} {
	there := make(chan struct{})
	go func() {
		defer close(there)
		for e := range c.watch.Events {
			if filepath.Base(e.Name) == stateFile {
				return
			}
		}
	}()
	return there
}

func pids(s State) (all []int) {
	all = append(all, s.NATS.Pid, s.Config.Pid)
	for _, g := range s.Gateways {
		all = append(all, g.Pid)
	}
	for _, w := range s.Workers {
		all = append(all, w.ServerPid, w.SidecarPid)
	}
	return all
}

// procState returns the letter of a process's state, "" when there is no such process.
func procState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// The whole life of a cluster: what cluster.json says, signals, restarts, scaling, the order of the
// drain, and that nothing is left.
func TestTheLifeOfACluster(t *testing.T) {
	c := newTestCluster(t)
	o := options(bin(t), c.dir, ports(t))
	stop := c.run(o)
	s := c.state()
	first := pids(s)
	if slices.Contains(first, 0) || len(s.Gateways) != 2 || len(s.Workers) != 2 ||
		s.Workers[1].Pool != "p2" {
		t.Fatalf("cluster.json: %+v", s)
	}
	// A second one on the same directory is told so.
	if _, err := New(options(o.BinDir, c.dir, o.Port+500)); err == nil ||
		!strings.Contains(err.Error(), "is in use by another") ||
		!strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("a second cluster: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	send := func(m Command) Reply {
		t.Helper()
		r, err := Send(ctx, c.dir, m)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		return r
	}
	// kill: the process is gone when the reply comes, and another one comes.
	send(Command{Do: "kill", Target: "server/1"})
	if state := procState(first[len(first)-2]); state != "" {
		t.Errorf("server/1 is in state %s after kill", state)
	}
	c.await("another server/1", func(s State) bool {
		return s.Workers[1].ServerPid != 0 && s.Workers[1].ServerPid != first[len(first)-2]
	})
	// stop and cont.
	sidecar := c.state().Workers[0].SidecarPid
	if r := send(Command{Do: "stop", Target: "sidecar/0"}); r.Processes[0].State != stopped {
		t.Errorf("%+v", r)
	}
	if procState(sidecar) != "T" {
		t.Errorf("sidecar/0 is %s, want T", procState(sidecar))
	}
	if r := send(Command{Do: "cont", Target: "sidecar/0"}); r.Processes[0].State != running {
		t.Errorf("%+v", r)
	}
	// All of a role, both of a worker.
	if r := send(Command{Do: "term", Target: "gateway"}); len(r.Processes) != 2 {
		t.Errorf("%+v", r)
	}
	c.await("other gateways", func(s State) bool {
		a, b := s.Gateways[0].Pid, s.Gateways[1].Pid
		return a != 0 && b != 0 && a != first[2] && b != first[3]
	})
	if r := send(Command{Do: "cont", Target: "worker/0"}); len(r.Processes) != 2 {
		t.Errorf("%+v", r)
	}
	// Up and down.
	send(Command{Do: "scale", Workers: 4})
	if s := c.state(); len(s.Workers) != 4 || slices.Contains(pids(s)[4:], 0) ||
		s.Workers[3].ID != "worker-3" {
		t.Errorf("scaled to 4: %+v", s.Workers)
	}
	gone := c.state().Workers[3]
	send(Command{Do: "scale", Workers: 1})
	if s := c.state(); len(s.Workers) != 1 || procState(gone.ServerPid) != "" ||
		procState(gone.SidecarPid) != "" {
		t.Errorf("scaled to 1: %+v", s.Workers)
	}
	if _, err := os.Stat(filepath.Dir(gone.Socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a worker that left: %v", err)
	}
	if r := send(Command{Do: "status"}); len(r.Processes) != 6 {
		t.Errorf("%d processes, want 6: %+v", len(r.Processes), r)
	}
	for _, m := range []Command{
		{Do: "kill", Target: "server/1"}, {Do: "kill", Target: "x"}, {Do: "kill", Target: "server/-1"},
		{Do: "scale", Workers: MaxWorkers + 1}, {Do: "no"},
	} {
		if _, err := Send(ctx, c.dir, m); err == nil {
			t.Errorf("%+v was accepted", m)
		}
	}
	// A process that was stopped drains too.
	send(Command{Do: "stop", Target: "sidecar/0"})
	if err := os.Remove(c.ends); err != nil {
		t.Fatal(err)
	}
	last := pids(c.state())
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	text, err := os.ReadFile(c.ends)
	if want := "sie-gateway sie-gateway sie-sidecar sie-server sie-config nats"; err != nil ||
		strings.Join(strings.Fields(string(text)), " ") != want {
		t.Errorf("the order of the drain: %q, want %q (%v)", text, want, err)
	}
	for _, pid := range last {
		if state := procState(pid); state != "" {
			t.Errorf("process %d is left, %s", pid, state)
		}
	}
	left, err := os.ReadDir(c.dir)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"log", markFile}) || err != nil {
		t.Errorf("files are left: %v %v", names, err)
	}
	if _, err := Send(ctx, c.dir, Command{Do: "status"}); err == nil ||
		!strings.Contains(err.Error(), "no cluster is ready") {
		t.Errorf("a command without a cluster: %v", err)
	}
}

// cluster.json has exactly the keys that other programs rely on.
func TestTheKeysOfTheState(t *testing.T) {
	o := options("", "/s", 8000)
	o.NATSNodes = 3
	c := &Cluster{o: o}
	quiet := func(role string, i int) *process {
		return newProcess(spec{role: role, index: i}, nil, false, &logFile{}, nil, nil)
	}
	c.nats, c.config = []*process{quiet(NATS, 0)}, quiet(Config, 0)
	c.gateways = []*process{quiet(Gateway, 0)}
	c.workers = []*worker{{lane: o.Lanes[0], server: quiet(Server, 0), sidecar: quiet(Sidecar, 0)}}
	text, err := json.Marshal(c.State())
	want := `{"gateways":[{"url":"http://127.0.0.1:8000","metrics_url":"http://127.0.0.1:8148/metrics","pid":0}],` +
		`"nats":{"url":"nats://127.0.0.1:8010,nats://127.0.0.1:8011,nats://127.0.0.1:8012","pid":0},` +
		`"config":{"url":"http://127.0.0.1:8008","pid":0},` +
		`"workers":[{"id":"worker-0","pool":"default","profile":"cpu","bundle":"default","server_pid":0,` +
		`"sidecar_pid":0,"socket":"/s/run/w0/ipc.sock","probe_url":"http://127.0.0.1:8020",` +
		`"metrics_url":"http://127.0.0.1:8020/metrics"}]}`
	if string(text) != want || err != nil {
		t.Errorf("%s\nwant\n%s\n%v", text, want, err)
	}
}

// A cluster whose gateways ask for keys scales itself: it reads metrics where no key is needed.
func TestAutoscaleWithKeys(t *testing.T) {
	t.Setenv("SIE_TEST_KEYS", "1")
	c := newTestCluster(t)
	o := options(bin(t), c.dir, ports(t))
	o.Autoscale = true
	stop := c.run(o)
	s := c.await("a worker",
		func(s State) bool { return len(s.Workers) == 1 && s.Workers[0].SidecarPid != 0 })
	if s.Workers[0].Pool != "default" { // the other lane has no demand
		t.Errorf("%+v", s.Workers)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// With a certificate in the environment the gateways serve HTTPS, with an authority only clients
// that have one of it. The cluster comes up, says https, and sie-config stays within it by HTTP.
func TestGatewaysWithACertificate(t *testing.T) {
	ca := testrig.NewAuthority(t)
	ca.Sign("gateway", &x509.Certificate{DNSNames: []string{"sie.example.com"}})
	t.Setenv("SIE_TLS_CERT", ca.Path("gateway"))
	t.Setenv("SIE_TLS_KEY", ca.Path("gateway-key"))
	for _, demanded := range []string{"", ca.Path("ca")} {
		t.Setenv("SIE_TLS_CLIENT_CA", demanded)
		c := newTestCluster(t)
		o := options(bin(t), c.dir, ports(t))
		var said testrig.Log
		o.Out = &said
		stop := c.run(o)
		testrig.Until(t, "the cluster has said all that it says when it is ready", func() bool {
			return strings.Contains(said.String(), "see it survive")
		})
		if s := c.state(); !strings.HasPrefix(s.Gateways[0].URL, "https://127.0.0.1:") ||
			!strings.HasPrefix(s.Gateways[0].MetricsURL, "http://") ||
			!strings.HasPrefix(s.Config.URL, "http://") {
			t.Errorf("%+v", s)
		}
		if text := said.String(); !strings.Contains(text, "curl -sk https://") ||
			!strings.Contains(text, "--insecure --url https://") {
			t.Errorf("%s", text)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A cluster of three NATS servers elects a leader before anything relies on it.
func TestThreeNATSServers(t *testing.T) {
	c := newTestCluster(t)
	o := options(bin(t), c.dir, ports(t))
	o.NATSNodes, o.Workers, o.Gateways, o.Storage = 3, 1, 1, "file"
	stop := c.run(o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := Send(ctx, c.dir, Command{Do: "kill", Target: "nats/2"})
	if err != nil || len(r.Processes) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := await(ctx, "two of three", jetStream(o.natsURL(), bus.Access{})); err != nil {
		t.Errorf("two of three elect no leader: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "nats", "0")); err != nil {
		t.Errorf("streams in files do not outlive the cluster: %v", err)
	}
}

// A cluster finds its ports, and uses brokers that run already without ending them.
func TestABrokerOfSomebodyElse(t *testing.T) {
	c := newTestCluster(t)
	broker := bustest.Start(t, nil)
	o := options(bin(t), c.dir, 0)
	o.NATSURL, o.Workers, o.Gateways = broker.URL, 1, 1
	stop := c.run(o)
	s := c.state()
	if s.NATS.URL != broker.URL || s.NATS.Pid != 0 || s.Config.Pid == 0 {
		t.Errorf("%+v", s)
	}
	if err := answers(s.Gateways[0].URL)(t.Context()); err != nil {
		t.Errorf("the port that was found: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := jetStream(broker.URL, bus.Access{})(t.Context()); err != nil {
		t.Errorf("the broker after the cluster's end: %v", err)
	}
}

// A cluster that is killed leaves no process, and the next one on its directory starts.
func TestAKilledClusterLeavesNoProcess(t *testing.T) {
	c := newTestCluster(t)
	programs, port := bin(t), ports(t)
	cmd := exec.Command(filepath.Join(programs, "cluster"))
	cmd.Env = append(os.Environ(), "SIE_TEST_BIN="+programs, "SIE_TEST_STATE="+c.dir,
		fmt.Sprintf("SIE_TEST_PORT=%d", port))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ready in") {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	all := pids(c.state())
	var polls []unix.PollFd
	for _, pid := range all {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		polls = append(polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	// One is stopped, and ends nevertheless.
	if err := syscall.Kill(all[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	over := time.Now().Add(patience)
	for i := range polls {
		n, err := 0, error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(polls[i:i+1], max(int(time.Until(over).Milliseconds()), 0))
		}
		if n != 1 {
			t.Errorf("process %d is left: %v", all[i], err)
			_ = unix.PidfdSendSignal(int(polls[i].Fd), unix.SIGKILL, nil, 0)
		}
	}
	_ = cmd.Wait()
	if _, err := os.Stat(filepath.Join(c.dir, stateFile)); err != nil {
		t.Errorf("the test proves nothing: %v", err)
	}
	if err := c.run(options(programs, c.dir, port))(); err != nil {
		t.Errorf("the next cluster: %v", err)
	}
}

// A program that ends at once fails the start with its last words, and nothing is left.
func TestAStartThatFails(t *testing.T) {
	c := newTestCluster(t)
	o := options(bin(t), c.dir, ports(t))
	t.Setenv("SIE_TEST_FAIL_server", "no device null here")
	cluster, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Run(t.Context(), t.Context())
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready") ||
		!strings.Contains(err.Error(), "no device null here") {
		t.Errorf("Run: %v", err)
	}
	for _, p := range cluster.all(Worker) {
		if p.status().State != ended {
			t.Errorf("%+v is left", p.status())
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("sockets are left: %v", err)
	}
}

// Each bad option is refused with the flag to mend, and a taken port with whose it is.
func TestBadOptionsAreRefused(t *testing.T) {
	programs, port := bin(t), ports(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+workersOffset+3))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"gateways": {func(o *Options) { o.Gateways = 0 }, "--gateways must be between 1 and 8"},
		"workers":  {func(o *Options) { o.Workers = 65 }, "--workers must be between 0 and 64"},
		"port":     {func(o *Options) { o.Port = 65500 }, "--port must be between 0 and"},
		"nodes":    {func(o *Options) { o.NATSNodes = 2 }, "--nats-nodes must be 1 or 3"},
		"nats port": {
			func(o *Options) { o.NATSPort = o.Port + 20 }, "is among the cluster's own ports",
		},
		"replicas": {func(o *Options) { o.Replicas = 2 }, "--replicas must be 1 or 3"},
		"two brokers": {
			func(o *Options) { o.NATSURL, o.Auth = "nats://x:1", true }, "of the cluster's own NATS",
		},
		"storage":   {func(o *Options) { o.Storage = "disk" }, "--storage must be memory or file"},
		"no lanes":  {func(o *Options) { o.Lanes = nil }, "--lanes is empty"},
		"same lane": {func(o *Options) { o.Lanes[1] = o.Lanes[0] }, "names default/cpu/default twice"},
		"bad lane":  {func(o *Options) { o.Lanes[0].Pool = "a.b" }, `pool "a.b" contains '.'`},
		"long directory": {
			func(o *Options) { o.StateDir = "/" + strings.Repeat("x", 100) }, "is too long: a socket in it",
		},
		"no programs": {func(o *Options) { o.BinDir = t.TempDir() }, "sie-server is not in"},
		"a taken port": {
			func(*Options) {}, fmt.Sprintf("port %d, of server/1, is taken", port+workersOffset+3),
		},
		"not ours": {func(o *Options) { o.StateDir = "/proc" }, "--state-dir"},
	} {
		o := options(programs, shortDir(t), port)
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, bad := range []string{"", "a/b", "a/b/c/d", "a//c", "a/b/c.d"} {
		if _, err := ParseLane(bad); err == nil {
			t.Errorf("lane %q was accepted", bad)
		}
	}
	if l, err := ParseLane("a/b/c"); err != nil || l.String() != "a/b/c" {
		t.Errorf("%v %v", l, err)
	}
}
