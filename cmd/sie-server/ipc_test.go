//go:build native

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/testrig"
)

// nullServer is a real process on the null device.
type nullServer struct {
	*testing.T
	cmd *exec.Cmd
	log testrig.Log
	url string
}

// startNull starts a server with an IPC socket, and returns when it says that it is ready.
func startNull(t *testing.T, socket string, args ...string) *nullServer {
	t.Helper()
	s := &nullServer{T: t, cmd: exec.Command("sie-server", append([]string{
		"serve", "--device", "null", "--port", "0", "--ipc-socket", socket,
	}, args...)...)}
	testrig.DieWithParent(s.cmd)
	s.cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir())
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	ready := regexp.MustCompile(`msg=ready url=(\S+)`)
	testrig.Until(t, "the server is ready", func() bool { return ready.MatchString(s.log.String()) })
	s.url = ready.FindStringSubmatch(s.log.String())[1]
	return s
}

func (s *nullServer) get(path string) int {
	s.Helper()
	a, err := http.Get(s.url + path)
	if err != nil {
		s.Fatal(err)
	}
	defer a.Body.Close()
	return a.StatusCode
}

// ends waits for the process and returns how it ended.
func (s *nullServer) ends() syscall.WaitStatus {
	s.Helper()
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// ping sends one Ping over the socket and returns its answer.
func ping(t *testing.T, socket string) (p ipc.PingResponse) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body, err := (&ipc.PingRequest{TimestampMS: 1}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := ipc.AppendFrame(nil, &ipc.Request{
		Version: ipc.Version, Method: ipc.MethodPing, RequestID: "1", Body: msgp.Raw(body),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	raw, err := ipc.ReadFrame(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var a ipc.Response
	if _, err := a.UnmarshalMsg(raw); err != nil || !a.OK {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := p.UnmarshalMsg(a.Body); err != nil {
		t.Fatal(err)
	}
	return p
}

// A real process serves its socket: readiness waits for the sidecar, a live socket is not stolen, a
// crash ends the process by a signal and leaves a socket that the next one replaces.
func TestIPCSocketOfAProcess(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s", "ipc.sock")
	first := startNull(t, socket, "--ipc-require-heartbeat")
	if got := first.get("/readyz"); got != 503 {
		t.Errorf("/readyz before a heartbeat: %d", got)
	}
	p := ping(t, socket)
	if got := first.get("/readyz"); got != 200 || !p.Ready || p.PID != first.cmd.Process.Pid {
		t.Errorf("/readyz after a heartbeat: %d, %+v", got, p)
	}
	out, err := exec.Command("sie-server", "serve", "--device",
		"null", "--port", "0", "--ipc-socket", socket).
		CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("another process listens on the IPC socket")) {
		t.Errorf("a second server: %v\n%s", err, out)
	}
	a, err := http.Post(first.url+"/v1/encode/BAAI/bge-m3", "application/json",
		strings.NewReader(`{"items":[{"text":"!crash"}]}`))
	if err == nil {
		rest, _ := io.ReadAll(a.Body)
		a.Body.Close()
		t.Fatalf("a crash is answered: %d %s", a.StatusCode, rest)
	}
	if how := first.ends(); !how.Signaled() || how.Signal() != syscall.SIGABRT {
		t.Errorf("it ended with %v", how)
	}
	if _, err := os.Lstat(socket); err != nil {
		t.Errorf("a crash leaves no socket: %v", err)
	}
	second := startNull(t, socket)
	if again := ping(t, socket); again.Epoch == p.Epoch {
		t.Error("two processes have one epoch")
	}
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if how := second.ends(); !how.Exited() || how.ExitStatus() != 0 {
		t.Errorf("after SIGTERM: %v\n%s", how, second.log.String())
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Flags that cannot work together are refused at the start.
func TestIPCFlags(t *testing.T) {
	for args, says := range map[string]string{
		"--ipc-require-heartbeat":                                 "needs --ipc-socket",
		"--ipc-socket=/nonexistent/dir/ipc.sock":                  "no such file",
		"--ipc-socket=/tmp/" + strings.Repeat("x", 120) + "/sock": "choose a shorter one",
		"--null-batch=2h":                                         "--null-batch",
	} {
		cmd := exec.Command("sie-server", "serve", "--device", "null", "--port", "0", args)
		cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v, %s", args, err, fmt.Sprintf("%.400s", out))
		}
	}
}
