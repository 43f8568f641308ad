package histories

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/testrig"
)

// patience bounds a step that is certain to end. No check depends on speed.
const patience = 2 * time.Minute

// build builds the programs of the control plane where nobody has, and returns their folder.
func build(t *testing.T) string {
	t.Helper()
	if there := testrig.Programs(); there != "" {
		return there
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "disable_grpc_modules,netgo,osusergo",
		"-o", dir+"/", "../../../cmd/sie-gateway", "../../../cmd/sie-config")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// process is a program that is started again and again, each time on a free port.
type process struct {
	t    *testing.T
	argv []string
	env  []string
	said string // the message of its log that has its address
	log  testrig.Log
	busy sync.Mutex // held while it is killed and started again

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	at    string // host:port; "" until it is known
	ports chan string
}

// start starts the program, which must not run.
func (p *process) start() {
	p.t.Helper()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(append(os.Environ(), "SIE_LOG_JSON=1"), p.env...)
	testrig.DieWithParent(cmd)
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	found, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			_, _ = p.log.Write(append(lines.Bytes(), '\n'))
			var of struct{ Message, Address, URL string }
			if json.Unmarshal(lines.Bytes(), &of) == nil && of.Message == p.said {
				found <- strings.TrimPrefix(of.Address+of.URL, "nats://")
			}
		}
		_ = cmd.Wait()
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ended, p.ports, p.at = cmd, ended, found, ""
}

// addr waits for the address of the program that runs now.
func (p *process) addr() string {
	p.t.Helper()
	p.mu.Lock()
	at, ports, ended := p.at, p.ports, p.ended
	p.mu.Unlock()
	if at != "" {
		return at
	}
	select {
	case at = <-ports:
	case <-ended:
		p.t.Fatalf("%v ended at its start:\n%s", p.argv, tail(p.log.String()))
	case <-time.After(patience):
		p.t.Fatalf("%v is not ready after %v:\n%s", p.argv, patience, tail(p.log.String()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
	return at
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// kill ends the program as a crash does.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// world is a control plane of three gateways, with a link between any two of its processes.
type world struct {
	t              *testing.T
	nats, config   *process
	gateways       [3]*process
	brokerOf       [3]*link
	configOf       [3]*link
	brokerOfConfig *link

	mu   sync.Mutex
	urls [3]string // of the gateways; "" while one starts
}

const builtin = "sentence-transformers/all-MiniLM-L6-v2"

// startWorld starts all processes and waits until they listen.
func startWorld(t *testing.T) *world {
	t.Helper()
	programs, dir := build(t), t.TempDir()
	gateway, config := filepath.Join(programs, "sie-gateway"), filepath.Join(programs, "sie-config")
	w := &world{t: t}
	begin := func(said string, env []string, argv ...string) *process {
		p := &process{t: t, argv: argv, env: env, said: said}
		p.start()
		t.Cleanup(p.kill)
		return p
	}
	w.nats = begin("ready", nil, gateway, "nats", "--port", "0", "--store-dir", filepath.Join(dir, "nats"))
	w.brokerOfConfig = newLink(t, w.nats.addr())
	w.config = begin("sie-config", []string{"SIE_NATS_URL=nats://" + w.brokerOfConfig.addr(),
		"SIE_CONFIG_STORE_DIR=" + filepath.Join(dir, "store")},
		config, "serve", "--host", "127.0.0.1", "--port", "0", "--models", builtin)
	for i := range w.gateways {
		w.brokerOf[i], w.configOf[i] = newLink(t, w.nats.addr()), newLink(t, w.config.addr())
		w.gateways[i] = begin("sie-gateway", []string{"SIE_NATS_URL=nats://" + w.brokerOf[i].addr(),
			"SIE_CONFIG_SERVICE_URL=http://" + w.configOf[i].addr(), "SIE_STREAM_STORAGE=file",
			`SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES=[{"pool":"default","machineProfile":"l4","bundle":"default"}]`},
			gateway, "serve", "--host", "127.0.0.1", "--port", "0")
	}
	for i, g := range w.gateways {
		w.urls[i] = "http://" + g.addr()
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range []*process{w.nats, w.config, w.gateways[0], w.gateways[1], w.gateways[2]} {
				t.Logf("%v:\n%s", p.argv[:2], tail(p.log.String()))
			}
		}
	})
	return w
}

// url returns where a gateway is, "" while it starts.
func (w *world) url(i int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.urls[i]
}

// restart kills a gateway and starts it again.
func (w *world) restart(i int, pause time.Duration) {
	w.gateways[i].busy.Lock()
	defer w.gateways[i].busy.Unlock()
	w.mu.Lock()
	w.urls[i] = ""
	w.mu.Unlock()
	w.gateways[i].kill()
	time.Sleep(pause)
	w.gateways[i].start()
	at := w.gateways[i].addr()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.urls[i] = "http://" + at
}

// restartConfig kills sie-config and starts it again.
func (w *world) restartConfig(pause time.Duration) {
	w.config.busy.Lock()
	defer w.config.busy.Unlock()
	w.config.kill()
	time.Sleep(pause)
	w.config.start()
	at := w.config.addr()
	for _, l := range w.configOf {
		l.lead(at)
	}
}

// restartBroker kills NATS and starts it again with the streams that it had.
func (w *world) restartBroker(pause time.Duration) {
	w.nats.busy.Lock()
	defer w.nats.busy.Unlock()
	w.nats.kill()
	time.Sleep(pause)
	w.nats.start()
	at := w.nats.addr()
	for _, l := range append(w.brokerOf[:], w.brokerOfConfig) {
		l.lead(at)
	}
}
