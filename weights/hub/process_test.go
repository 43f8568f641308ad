package hub

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain makes the test binary a process that resolves the test model, when it is asked to by the environment.
func TestMain(m *testing.M) {
	if os.Getenv("SIE_TEST_RESOLVE") == "" {
		os.Exit(m.Run())
	}
	options, err := OptionsFromEnv(os.LookupEnv)
	if err == nil {
		options.Progress = func(p Progress) { fmt.Println(p.Stage) }
		var r *Resolver
		if r, err = New(options); err == nil {
			var found Resolved
			if found, err = r.Resolve(context.Background(), modelID, ""); err == nil {
				fmt.Println("found", found.Source)
				os.Exit(0)
			}
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

// process starts another process on the same hub and cache.
func (h *harness) process() (*exec.Cmd, *bufio.Scanner) {
	h.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"SIE_TEST_RESOLVE=1", "HF_ENDPOINT=" + h.hub.URL, "SIE_LOCAL_CACHE=" + h.cache, "NO_PROXY=*"}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out)
}

// TestKillNine kills a downloading process with SIGKILL in the middle of the weights. A process that waited for it
// takes over, resumes where it was, and the model is whole.
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
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
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
