// Package buckettest runs storage servers for tests and checks implementations of bucket.Bucket.
// [S3] runs versitygw over a directory, [GCS] runs fake-gcs-server. Each is a separate process,
// built by tools/setup/buckets.sh. Without it a test is skipped, or fails with SIE_REQUIRE_BUCKETS
// set. [Contract] checks the behaviour that every bucket.Bucket must have.
package buckettest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/testrig"
)

// bucketName is the only bucket of a server.
const bucketName = "models"

// program returns the path of a server's binary, or skips the test.
func program(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(testrig.Root(tb), "build", "bin", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("SIE_REQUIRE_BUCKETS") != "" {
			tb.Fatalf("%s is not there: run tools/setup/buckets.sh", path)
		}
		tb.Skipf("%s is not there: run tools/setup/buckets.sh", path)
	}
	return path
}

// S3 starts an S3 server and returns the bucket's URL and the environment for its clients. It also
// sets that environment for this test. dir is where the server keeps the bucket's objects, as files
// named by their keys.
func S3(tb testing.TB) (url string, env []string, dir string) {
	root, meta := tb.TempDir(), tb.TempDir()
	dir = filepath.Join(root, bucketName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	name := program(tb, "versitygw")
	address := start(tb, func(address string) *exec.Cmd {
		cmd := exec.Command(name, "--address", address, "--sidecar", meta, root)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=tester", "ROOT_SECRET_KEY=not-a-secret")
		return cmd
	})
	env = []string{
		"AWS_ENDPOINT_URL=http://" + address, "AWS_ACCESS_KEY_ID=tester",
		"AWS_SECRET_ACCESS_KEY=not-a-secret", "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"NO_PROXY=*",
	}
	setenv(tb, env)
	return "s3://" + bucketName, env, dir
}

// GCS starts an imitation of Google Cloud Storage. Its results are as for S3.
func GCS(tb testing.TB) (url string, env []string, dir string) {
	root := tb.TempDir()
	dir = filepath.Join(root, bucketName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	name := program(tb, "fake-gcs-server")
	address := start(tb, func(address string) *exec.Cmd {
		return exec.Command(name, "--address", address, root)
	})
	env = []string{"STORAGE_EMULATOR_HOST=" + address, "NO_PROXY=*"}
	setenv(tb, env)
	return "gs://" + bucketName, env, dir
}

func setenv(tb testing.TB, env []string) {
	for _, e := range env {
		name, value, _ := bytes.Cut([]byte(e), []byte("="))
		tb.Setenv(string(name), string(value))
	}
}

func freeAddress(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a server until the test ends in any way, and returns its address when it answers.
// Another program may take the chosen port before the server starts. The server then ends, and
// start tries another port.
func start(tb testing.TB, server func(address string) *exec.Cmd) (address string) {
	for range 10 {
		address = freeAddress(tb)
		cmd := server(address)
		if log, ok := run(tb, cmd, address); !ok {
			tb.Logf("%s ended before it answered at %s: %s", cmd.Path, address, log)
			continue
		}
		return address
	}
	tb.Fatal("no port of ten would do")
	return ""
}

// run starts the server and waits until it answers or ends. When it ends, run returns its last
// output and false.
func run(tb testing.TB, cmd *exec.Cmd, address string) (said string, ok bool) {
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	testrig.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	last := func() string { return log.String()[max(0, log.Len()-4000):] } // call after the process has ended
	go func() { _ = cmd.Wait(); close(ended) }()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		if <-ended; tb.Failed() {
			tb.Logf("%s: %s", cmd.Path, last())
		}
	})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for {
		resp, err := client.Get(fmt.Sprintf("http://%s/", address))
		if err == nil {
			resp.Body.Close()
			return "", true
		}
		select {
		case <-ended:
			return last(), false
		case <-time.After(20 * time.Millisecond):
		}
	}
}
