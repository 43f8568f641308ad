package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/s3"
)

// TestMain turns the test binary into a process that resolves a model when the environment asks for
// it. SIE_TEST_RESOLVE names the model, SIE_TEST_BUCKET a cluster's bucket, SIE_TEST_STALL the
// bucket operation that stalls (see stalling). SIE_TEST_HOLD keeps the model in use until the
// standard input ends. With SIE_TEST_WRITE it writes a file of that repository on a full disk.
func TestMain(m *testing.M) {
	if repo := os.Getenv("SIE_TEST_WRITE"); repo != "" {
		writeOnFullDisk(repo)
	}
	if os.Getenv("SIE_TEST_RESOLVE") == "" {
		os.Exit(m.Run())
	}
	if err := resolveInProcess(os.Getenv("SIE_TEST_RESOLVE")); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func resolveInProcess(model string) error {
	options, err := OptionsFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	options.Progress = func(p Progress) { fmt.Println(p.Stage) }
	if raw := os.Getenv("SIE_TEST_BUCKET"); raw != "" {
		url, err := bucket.Parse(raw)
		if err != nil {
			return err
		}
		options.Bucket = stalling{s3.New(url), os.Getenv("SIE_TEST_STALL")}
	}
	r, err := New(options)
	if err != nil {
		return err
	}
	found, err := r.Resolve(context.Background(), model, "")
	if err != nil {
		return err
	}
	fmt.Println("found", found.Source)
	if os.Getenv("SIE_TEST_HOLD") != "" {
		io.Copy(io.Discard, os.Stdin)
	}
	found.Release()
	r.Shutdown(context.Background())
	return nil
}

// writeOnFullDisk writes the ref main of a repository where no file may have a byte. With
// SIE_TEST_KILL the kernel kills the process there.
func writeOnFullDisk(repo string) {
	cache := repoCache{repo}
	err := errors.Join(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{}))
	if os.Getenv("SIE_TEST_KILL") != "" {
		var byDefault [64]byte // the kernel's struct sigaction; Go handles the signal
		_, _, errno := unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGXFSZ),
			uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		if errno != 0 {
			err = errors.Join(err, errno)
		}
	}
	fmt.Println(err, cache.write(cache.ref("main"), []byte(strings.Repeat("0", 40))))
	os.Exit(0)
}

// TestKilledInASmallFile: a process that dies while it writes a small file leaves nothing where
// tools look for refs, and the next download removes what it left elsewhere.
func TestKilledInASmallFile(t *testing.T) {
	list := func(cache repoCache) (files []string) {
		filepath.WalkDir(cache.dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				name, _ := filepath.Rel(cache.dir, path)
				files = append(files, name)
			}
			return nil
		})
		return files
	}
	for _, kill := range []string{"", "yes"} {
		cache := repoCache{filepath.Join(t.TempDir(), "models--t--a")}
		cmd := exec.Command(os.Args[0])
		testrig.DieWithParent(cmd)
		cmd.Env = []string{"SIE_TEST_WRITE=" + cache.dir, "SIE_TEST_KILL=" + kill}
		out, err := cmd.Output()
		left := list(cache)
		if kill == "" { // the disk is full, and the process goes on
			if !strings.HasPrefix(string(out), "<nil> write ") || err != nil || len(left) > 0 {
				t.Errorf("%s%v; left: %v", out, err, left)
			}
			continue
		}
		if err == nil || len(left) != 1 || filepath.Dir(left[0]) != ".sie" {
			t.Errorf("killed: %s%v; left: %v", out, err, left)
		}
		if err := cache.removeStaging(); err != nil || len(list(cache)) > 0 {
			t.Errorf("the next download: %v; left: %v", err, list(cache))
		}
	}
}

// stalling is a bucket that prints a line and then stops forever: in the middle of the first large
// object ("get"), or before the first upload of a blob ("put blobs"), a manifest ("put .sie") or a
// ref ("put refs").
type stalling struct {
	bucket.Bucket
	where string
}

const stallAfter = 50_000

func (s stalling) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	o, body, err := s.Bucket.Open(ctx, key, from, version)
	if err == nil && s.where == "get" && o.Size > stallAfter {
		return o, stalled{io.LimitReader(body, stallAfter)}, nil
	}
	return o, body, err
}

type stalled struct{ io.Reader }

func (s stalled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		stall()
	}
	return n, err
}

func (stalled) Close() error { return nil }

func stall() {
	fmt.Println("stalled")
	select {}
}

func (s stalling) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (string, error) {
	what, isPut := strings.CutPrefix(s.where, "put ")
	if isPut && strings.Contains(key, "/"+what+"/") && !strings.HasSuffix(key, ".lock") {
		stall()
	}
	return s.Bucket.Put(ctx, key, body, size, when)
}

// process starts another process on the same hub and cache. env is added to its environment.
func (h *harness) process(env ...string) (*exec.Cmd, *bufio.Scanner) {
	h.Helper()
	cmd, out, _ := h.processWithInput(env...)
	return cmd, out
}

func (h *harness) processWithInput(env ...string) (*exec.Cmd, *bufio.Scanner, io.WriteCloser) {
	h.Helper()
	cmd := exec.Command(os.Args[0])
	testrig.DieWithParent(cmd)
	cmd.Env = append([]string{
		"SIE_TEST_RESOLVE=" + modelID, "HF_ENDPOINT=" + h.hub.URL, "SIE_LOCAL_CACHE=" + h.cache, "NO_PROXY=*",
	}, env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out), in
}

// TestKillNine kills a downloading process with SIGKILL in the middle of the weights. A process
// that waited for it continues the download from there, and the model is complete.
func TestKillNine(t *testing.T) {
	h := newHarness(t)
	half := make(chan struct{})
	h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 0 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(h.model.Files["model.safetensors"])))
		w.Write(h.model.Files["model.safetensors"][:50_000])
		w.(http.Flusher).Flush()
		close(half)
		<-r.Context().Done()
		return true
	}))
	victim, _ := h.process()
	<-half
	heir, lines := h.process()
	for lines.Scan() && lines.Text() != string(StageWaiting) {
	}
	part := h.repo().dir + "/blobs"
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if size := largestIn(part); size == 50_000 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the victim wrote %d bytes", size)
		}
	}
	h.wantInvisible()
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	victim.Wait()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if err := heir.Wait(); err != nil || last != "found hub" {
		t.Fatalf("the heir: %v, %q", err, last)
	}
	ranges := ""
	for _, r := range h.hub.Requests() {
		if r.Storage {
			ranges += r.Range + ";"
		}
	}
	if ranges != ";bytes=50000-;" {
		t.Errorf("ranges %q", ranges)
	}
	found, err := h.resolve(func(o *Options) { o.Offline = true })
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
}

func largestIn(dir string) (size int64) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			size = max(size, info.Size())
		}
	}
	return size
}

// TestProcessesShareOneDownload starts three processes at once.
func TestProcessesShareOneDownload(t *testing.T) {
	h := newHarness(t)
	var weights atomic.Int64
	h.hub.Fault(onStorage(func(int, http.ResponseWriter, *http.Request) bool {
		weights.Add(1)
		time.Sleep(100 * time.Millisecond)
		return false
	}))
	downloads := 0
	var outs []*bufio.Scanner
	var cmds []*exec.Cmd
	for range 3 {
		cmd, out := h.process()
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, out := range outs {
		text := ""
		for out.Scan() {
			text += out.Text() + "\n"
		}
		if err := cmds[i].Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, text)
		}
		downloads += strings.Count(text, "found hub")
	}
	if downloads != 1 || weights.Load() != 1 {
		t.Errorf("%d downloads, %d requests for the weights; want 1", downloads, weights.Load())
	}
}
