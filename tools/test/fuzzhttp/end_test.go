//go:build native

package fuzzhttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	endClients = 40
	endTimes   = 10
)

// A server that gets SIGTERM while forty clients use kept connections answers each request that was
// sent whole. It marks each client's last answer with Connection: close, and exits without an
// error.
func TestEndUnderLoad(t *testing.T) {
	for time := range endTimes {
		p := serve(t)
		body := `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"text":"the cat sat on the mat"},`, 1+
			19*(time%2)), ",") + `]}`
		request := fmt.Sprintf(
			"POST /v1/encode/mean HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s",
			jsonType, len(body), body)
		var clients sync.WaitGroup
		warm := make(chan struct{}, endClients)
		var mu sync.Mutex
		served, refused := 0, 0
		for k := range endClients {
			c, br, err := p.dial()
			if err != nil {
				t.Fatal(err)
			}
			clients.Go(func() {
				defer c.Close()
				for n := 0; ; n++ {
					if n == 3 {
						warm <- struct{}{}
					}
					if _, err := io.WriteString(c, request); err != nil {
						t.Errorf("time %d, client %d: request %d cannot be sent: %v", time, k, n, err)
						return
					}
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Errorf("time %d, client %d: request %d was sent and not answered: %v",
							time, k, n, err)
						return
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Errorf("time %d, client %d: answer %d: %v", time, k, n, err)
						return
					}
					mu.Lock()
					if resp.StatusCode == 200 {
						served++
					} else {
						refused++
					}
					mu.Unlock()
					switch {
					case resp.StatusCode != 200 && resp.StatusCode != 503:
						t.Errorf("time %d, client %d: %d", time, k, resp.StatusCode)
						return
					case resp.Close:
						return
					case resp.StatusCode == 503 && strings.Contains(p.log.String(), "shutting down"):
						t.Errorf("time %d, client %d: a 503 without Connection: close", time, k)
						return
					}
				}
			})
		}
		for range endClients {
			<-warm
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		clients.Wait()
		<-p.done
		var exit *exec.ExitError
		if errors.As(p.err, &exit) || p.err != nil {
			t.Errorf("time %d: the server ends with %v\n%s", time, p.err, tail(p.log.String()))
		}
		t.Logf("time %d: %d answers, %d refused", time, served, refused)
	}
}

// A request whose results can never be held is refused before memory is allocated for them.
func TestHugeRequestStaysSmall(t *testing.T) {
	p := serve(t, "--max-held-bytes", "200000000")
	// 4,096 bytes of results each would be 4 GiB
	body := `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"text":"a"},`, 1<<20), ",") + `]}`
	before := p.usage()
	resp, err := http.Post("http://"+p.addr+"/v1/encode/mean", jsonType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 400 || !strings.Contains(string(answer), "such items in a request") {
		t.Errorf("%v: %d %.500s", err, resp.StatusCode, answer)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak := 0
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscanf(strings.TrimSpace(rest), "%d", &peak)
		}
	}
	t.Logf("%d KiB before, at most %d, with a body of %d", before.rss, peak, len(body)>>10)
	if runtime.GOOS == "linux" && (peak == 0 || peak > before.rss+1<<20) {
		t.Errorf("%d KiB in memory at the peak, %d before", peak, before.rss)
	}
}
