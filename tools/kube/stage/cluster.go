package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

// The programs.
const (
	Gateway = "sie-gateway"
	Server  = "sie-server"
	Sidecar = "sie-sidecar"
	Config  = "sie-config"
)

// Options says what the processes of a Cluster have in common.
type Options struct {
	Dir     string            // for sockets, stores and logs; short, because a socket's path is
	Bin     map[string]string // directory of a program; "" for the others
	NATSURL string
	Users   *broker.Users       // passwords of NATS, nil: everybody may do everything
	CA      string              // file of the authority of NATS, "" without TLS
	Lanes   []bus.Lane          // of the gateways
	Models  []string            // ids of the catalog
	Env     map[string][]string // of a program, beyond what is set here
}

// Cluster starts processes. Its methods are safe for concurrent use.
type Cluster struct {
	Options

	mu     sync.Mutex
	all    []*Process
	config string // URL of sie-config
	count  map[string]int
}

// New returns a cluster without processes.
func New(o Options) (*Cluster, error) {
	for _, dir := range []string{o.Dir, filepath.Join(o.Dir, "store"), filepath.Join(o.Dir, "payloads")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return &Cluster{Options: o, count: map[string]int{}}, nil
}

// startTime bounds the start of a process, beside others on a busy machine.
const startTime = 2 * time.Minute

// start starts a program of the cluster under a name of its own.
func (c *Cluster) start(program string, env []string, args ...string) (*Process, error) {
	c.mu.Lock()
	c.count[program]++
	name := fmt.Sprintf("%s-%d", program, c.count[program])
	c.mu.Unlock()
	bin := cmp.Or(c.Bin[program], c.Bin[""])
	p, err := Start(c.Dir, name, slices.Concat(env, c.Env[program]),
		append([]string{filepath.Join(bin, program)}, args...)...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.all = append(c.all, p)
	c.mu.Unlock()
	return p, nil
}

// access returns the variables by which a component shows NATS who it is.
func (c *Cluster) access(user string) []string {
	a := bus.Access{CA: c.CA}
	if c.Users != nil {
		a.User = user
		switch user {
		case broker.GatewayUser:
			a.Password = c.Users.Gateway
		case broker.WorkerUser:
			a.Password = c.Users.Worker
		case broker.ConfigUser:
			a.Password = c.Users.Config
		}
	}
	return append(slices.DeleteFunc(a.Environ(), func(e string) bool { return strings.HasSuffix(e, "=") }),
		"SIE_NATS_URL="+c.NATSURL)
}

var (
	addressLine = regexp.MustCompile(` address=(\S+)`)
	probesLine  = regexp.MustCompile(` probes=(\S+)`)
	readyLine   = regexp.MustCompile(`msg=ready url=(\S+)`)
)

// StartConfig starts sie-config and returns it with its URL. It has a store. port is 0 for a free
// one; one that is started again must have the port that it had.
func (c *Cluster) StartConfig(ctx context.Context, port int) (*Process, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	args := []string{"serve", "--host", "127.0.0.1", "--port", fmt.Sprint(port)}
	for _, m := range c.Models {
		args = append(args, "-m", m)
	}
	env := append(c.access(broker.ConfigUser), "SIE_CONFIG_STORE_DIR="+filepath.Join(c.Dir, "store"))
	p, err := c.start(Config, env, args...)
	if err != nil {
		return nil, "", err
	}
	at, err := p.Await(ctx, addressLine)
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	c.config = "http://" + at
	c.mu.Unlock()
	return p, "http://" + at, nil
}

// SetConfig names the sie-config of processes that are started from now on, such as a proxy before
// it.
func (c *Cluster) SetConfig(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = url
}

func (c *Cluster) configURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

// StartGateway starts a gateway and returns it with its URL once it listens, which is before it is
// ready.
func (c *Cluster) StartGateway(ctx context.Context, env ...string) (*Process, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	lanes := make([]string, len(c.Lanes))
	for i, l := range c.Lanes {
		lanes[i] = fmt.Sprintf(`{"pool":%q,"machineProfile":%q,"bundle":%q}`, l.Pool, l.Profile, l.Bundle)
	}
	all := slices.Concat(c.access(broker.GatewayUser), []string{
		"SIE_CONFIG_SERVICE_URL=" + c.configURL(),
		"SIE_PAYLOAD_STORE_URL=" + filepath.Join(c.Dir, "payloads"),
		"SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES=[" + strings.Join(lanes, ",") + "]",
	}, env)
	p, err := c.start(Gateway, all, "serve", "--host", "127.0.0.1", "--port", "0")
	if err != nil {
		return nil, "", err
	}
	at, err := p.Await(ctx, addressLine)
	scheme := "http://"
	if strings.Contains(p.Log(), "tls=true") {
		scheme = "https://"
	}
	return p, scheme + at, err
}

// Worker is a server and its sidecar.
type Worker struct {
	Server, Sidecar *Process
	ServerURL       string
	ProbeURL        string // of the sidecar
}

// StartWorker starts a server on the null device and its sidecar, and returns them once both
// listen, which is before they are ready. The name is the worker's id.
func (c *Cluster) StartWorker(
	ctx context.Context, name string, lane bus.Lane, env ...string,
) (*Worker, error) {
	s, err := c.StartServer(ctx, name, lane, env...)
	if err != nil {
		return nil, err
	}
	return s, c.StartSidecar(ctx, s, name, lane, env...)
}

func (c *Cluster) socket(name string) string { return filepath.Join(c.Dir, name, "ipc.sock") }

// StartServer starts the server of a worker, and returns it without a sidecar.
func (c *Cluster) StartServer(
	ctx context.Context, name string, lane bus.Lane, env ...string,
) (*Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(c.Dir, name), 0o700); err != nil {
		return nil, err
	}
	args := []string{"serve", "--host", "127.0.0.1", "--port", "0", "--device", "null",
		"--ipc-socket", c.socket(name)}
	for _, m := range c.Models {
		args = append(args, "-m", m)
	}
	server, err := c.start(Server,
		append([]string{"SIE_POOL=" + lane.Pool, "SIE_MACHINE_PROFILE=" + lane.Profile}, env...), args...)
	if err != nil {
		return nil, err
	}
	at, err := server.Await(ctx, readyLine)
	return &Worker{Server: server, ServerURL: at}, err
}

// StartSidecar starts the sidecar of a worker.
func (c *Cluster) StartSidecar(
	ctx context.Context, w *Worker, name string, lane bus.Lane, env ...string,
) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	all := slices.Concat(c.access(broker.WorkerUser), []string{
		"SIE_POOL=" + lane.Pool, "SIE_MACHINE_PROFILE=" + lane.Profile, "SIE_BUNDLE=" + lane.Bundle,
		"SIE_WORKER_ID=" + name, "SIE_IPC_SOCKET_PATH=" + c.socket(name),
		"SIE_CONFIG_SERVICE_URL=" + c.configURL(),
		"SIE_PAYLOAD_STORE_URL=" + filepath.Join(c.Dir, "payloads"),
		"SIE_WORKER_PROBE_HOST=127.0.0.1", "SIE_WORKER_PROBE_PORT=0",
	}, env)
	sidecar, err := c.start(Sidecar, all)
	if err != nil {
		return err
	}
	at, err := sidecar.Await(ctx, probesLine)
	w.Sidecar, w.ProbeURL = sidecar, "http://"+at
	return err
}

// Ready waits until a page answers 200.
func Ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	why := errors.New("never asked")
	for {
		if why = Get(ctx, url); why == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", url, ctx.Err(), why)
		}
	}
}

// fresh asks over a new connection each time: the process behind a port may be another.
var fresh = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get returns an error unless a page answers 200.
func Get(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := fresh.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if b, _ := io.ReadAll(io.LimitReader(resp.Body, 300)); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return nil
}

// Adopt has Close kill a process that was started otherwise.
func (c *Cluster) Adopt(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
}

// Close kills what still runs.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all {
		p.Kill()
	}
}
