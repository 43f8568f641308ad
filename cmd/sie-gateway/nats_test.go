package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/gateway/broker"
)

// The test's own binary stands for sie-gateway when it is told so.
func TestMain(m *testing.M) {
	if os.Getenv("SIE_TEST_MAIN") == "" {
		os.Exit(m.Run())
	}
	main()
}

// start runs sie-gateway and returns the value of url= in its line "ready".
func start(t *testing.T, args ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "SIE_TEST_MAIN=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var said strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if _, rest, ok := strings.Cut(lines.Text(), "msg=ready url="); ok {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return rest, cmd
		}
	}
	t.Fatalf("it did not become ready:\n%s", said.String())
	return "", nil
}

// `nats` in a process of its own serves with passwords that it made, ends in order at SIGTERM, and
// tells of a port that is taken.
func TestNATSInItsProcess(t *testing.T) {
	dir := t.TempDir()
	url, cmd := start(t, "nats", "--port", "0", "--store-dir", dir, "--auth", dir+"/users.json")
	if _, err := nats.Connect(url); err == nil || !strings.Contains(err.Error(), "Authorization") {
		t.Errorf("without a user: %v", err)
	}
	users, err := broker.ReadUsers(dir + "/users.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := nats.Connect(url, nats.UserInfo(broker.GatewayUser, users.Gateway))
	if err != nil {
		t.Fatalf("with the user that it made: %v", err)
	}
	c.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := url[strings.LastIndex(url, ":")+1:]
	second := exec.Command(self, "nats", "--port", port, "--store-dir", t.TempDir())
	second.Env = append(os.Environ(), "SIE_TEST_MAIN=1")
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is another server on this port?") {
		t.Errorf("a taken port: %v\n%s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
