// Package buckettest runs storage servers for tests: [S3] a versitygw over a directory, [GCS] a fake-gcs-server. They are
// processes of their own, built by tools/setup/buckets.sh; a test is skipped where they are not, or fails with
// SIE_REQUIRE_BUCKETS set. [Contract] is what every bucket.Bucket must do.
package buckettest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// bucketName is the one bucket of a server.
const bucketName = "models"

// program is a server's binary, or skips the test.
func program(tb testing.TB, name string) string {
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "../../../build/bin", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("SIE_REQUIRE_BUCKETS") != "" {
			tb.Fatalf("%s is not there: run tools/setup/buckets.sh", path)
		}
		tb.Skipf("%s is not there: run tools/setup/buckets.sh", path)
	}
	return path
}

// S3 starts an S3 server and returns the bucket's URL and the environment of its clients, which it also sets for this
// test. dir is where the server keeps the bucket's objects, as files under their keys.
func S3(tb testing.TB) (url string, env []string, dir string) {
	root, meta := tb.TempDir(), tb.TempDir()
	dir = filepath.Join(root, bucketName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	address := freeAddress(tb)
	start(tb, address, []string{"ROOT_ACCESS_KEY=tester", "ROOT_SECRET_KEY=not-a-secret"}, program(tb, "versitygw"),
		"--port", address, "posix", "--sidecar", meta, root)
	env = []string{"AWS_ENDPOINT_URL=http://" + address, "AWS_ACCESS_KEY_ID=tester", "AWS_SECRET_ACCESS_KEY=not-a-secret",
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "NO_PROXY=*"}
	setenv(tb, env)
	return "s3://" + bucketName, env, dir
}

// GCS starts an imitation of Google Cloud Storage; see S3.
func GCS(tb testing.TB) (url string, env []string, dir string) {
	root := tb.TempDir()
	dir = filepath.Join(root, bucketName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	address := freeAddress(tb)
	host, port, _ := net.SplitHostPort(address)
	start(tb, address, nil, program(tb, "fake-gcs-server"), "-scheme", "http", "-host", host, "-port", port,
		"-backend", "filesystem", "-filesystem-root", root, "-external-url", "http://"+address, "-public-host", address)
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

// start runs a server until the test ends, and waits until it answers.
func start(tb testing.TB, address string, env []string, name string, args ...string) {
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if tb.Failed() {
			tb.Logf("%s: %s", name, log.String()[max(0, log.Len()-4000):])
		}
	})
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get(fmt.Sprintf("http://%s/", address))
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s does not answer: %v", name, err)
		}
	}
}
