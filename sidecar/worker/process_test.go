//go:build native

package worker

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/internal/work"
)

// minilm is a model of the built-in catalog; the null device makes its vectors up.
const minilm = "sentence-transformers/all-MiniLM-L6-v2"

// programs returns the folder of sie-server and sie-sidecar, which it builds once where nobody has.
var programs = sync.OnceValues(func() (string, error) {
	if dir := testrig.Programs(); dir != "" {
		return dir, nil
	}
	built = true
	dir, err := os.MkdirTemp("", "sie-sidecar-test-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"sie-server", "sie-sidecar"} {
		out, err := exec.Command("go", "build", "-tags", "native,disable_grpc_modules,netgo,osusergo", "-o",
			filepath.Join(dir, name), "../../cmd/"+name).CombinedOutput()
		if err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		dir, _ := programs()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// built says that the folder of programs is of this process.
var built bool

// process is a program that runs.
type process struct {
	cmd *exec.Cmd
	log *bytes.Buffer
}

func start(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(filepath.Join(dir, name), args...), log: &bytes.Buffer{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.log)
		}
	})
	return p
}

// kill ends the process at once. A second time it does nothing.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// A real sie-server and sie-sidecars over a real broker: the server is killed under load, and one
// sidecar ends in order while another begins. Everybody is answered, the same text with the same
// vector, and nothing is left.
func TestProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ipc")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	s := bustest.Start(t, nil)
	server := func() *process {
		return start(t, "sie-server", nil, "serve", "--host", "127.0.0.1", "--port", "0",
			"--ipc-socket", socket, "--device", "null", "--bundle", "default")
	}
	sidecar := func(id string) *process {
		return start(t, "sie-sidecar", []string{
			"SIE_NATS_URL=" + s.URL, "SIE_POOL=" + lane.Pool, "SIE_BUNDLE=" + lane.Bundle,
			"SIE_MACHINE_PROFILE=" + lane.Profile, "SIE_WORKER_ID=" + id, "SIE_IPC_SOCKET_PATH=" + socket,
			"SIE_WORKER_PROBE_PORT=0", "SIE_DRAIN_TIMEOUT=20s",
		})
	}
	running, first := server(), sidecar("w1")
	g := newGateway(t, s, "gw")
	g.republish()
	g.prepare(minilm)
	publish := func(i int) {
		g.publish(minilm, fmt.Sprintf("r%d", i), func(it *work.Item, _ *nats.Msg) {
			it.Items = nil
			for k := range 3 {
				text := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "text")
				it.Items = append(it.Items, msgp.AppendString(text, fmt.Sprintf("text %d", (i+k)%10)))
			}
			it.ProfileID, it.OutputTypes = "default", []string{"dense"}
		})
	}
	const n = 300
	for i := range n {
		publish(i)
		switch i {
		case n / 3:
			g.result("r0")
			running.kill()
			running = server()
		case 2 * n / 3:
			g.result(fmt.Sprintf("r%d", i/2))
			if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			sidecar("w2")
		}
	}
	vectors := map[int][]byte{}
	by := map[string]int{}
	for i := range n {
		r := g.result(fmt.Sprintf("r%d", i))
		if !r.Success || len(r.Results) != 3 {
			t.Fatalf("%d: %s %s", i, r.ErrorCode, r.Error)
		}
		by[r.WorkerID]++
		for k, raw := range r.Results {
			dense := msgp.Locate("dense", raw)
			of := (i + k) % 10
			if vectors[of] == nil {
				vectors[of] = dense
			}
			if len(dense) < 100 || !bytes.Equal(dense, vectors[of]) {
				t.Fatalf("the vector of text %d is %d bytes, and another than before", of, len(dense))
			}
		}
	}
	g.settled(empty0)
	ended := make(chan error, 1)
	go func() { ended <- first.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the sidecar that was told to end: %v", err)
		}
	case <-time.After(patience):
		t.Error("the sidecar that was told to end does not")
	}
	if by["w1"] == 0 || by["w2"] == 0 {
		t.Errorf("answers came from %v", by)
	}
}
