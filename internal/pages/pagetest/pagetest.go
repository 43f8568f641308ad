// Package pagetest opens the pages of a server in a headless browser, for tests.
//
// Entry points: Browser, Open.
package pagetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Tab is a page in a headless browser. It fails its test at the first thing that goes wrong.
type Tab struct {
	context.Context
	t      *testing.T
	Origin string // of the server, http://host:port

	mu       sync.Mutex
	foreign  []string // requests to other hosts
	complain []string // exceptions, console errors, violations of the policy
}

// Browser finds the browser, which the tests declare as a dependency (tools/setup/deps.sh test).
// Call it before a server is started: skipping a test whose server does not listen yet would leave
// the server running.
func Browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes seconds; without -short")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("SIE_REQUIRE_BROWSER") != "" {
		t.Fatal("no chromium on the PATH: run tools/setup/deps.sh test")
	}
	t.Skip("no chromium on the PATH: run tools/setup/deps.sh test")
	return ""
}

// startBrowser starts a browser, which ends with the test. On a machine with many other programs it
// may not get the processes, memory or time that it needs to start; it is then started again, since
// no test is about that.
func startBrowser(t *testing.T, path string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1200, 1500), chromedp.WSURLReadTimeout(2*time.Minute))
	for try := 1; ; try++ {
		ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
		ctx, closeTab := chromedp.NewContext(ctx)
		end := func() { closeTab(); cancel() }
		err := chromedp.Run(ctx)
		if err == nil {
			t.Cleanup(end)
			return ctx
		}
		end()
		if try == 5 {
			t.Fatalf("%s did not start in %d tries: %v", path, try, err)
		}
		t.Logf("%s did not start, once more: %v", path, err)
		time.Sleep(time.Duration(try) * time.Second)
	}
}

// Open opens the page at "/" of a server.
func Open(t *testing.T, browser, origin string) *Tab {
	t.Helper()
	ctx, late := context.WithTimeout(startBrowser(t, browser), 10*time.Minute)
	t.Cleanup(late)
	b := &Tab{Context: ctx, t: t, Origin: origin}
	chromedp.ListenTarget(ctx, b.event)
	b.Do(network.Enable(), log.Enable(), chromedp.Navigate(b.Origin+"/"))
	return b
}

func (b *Tab) event(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.Origin) && !strings.HasPrefix(u, "data:") {
			b.foreign = append(b.foreign, u)
		}
	case *runtime.EventExceptionThrown:
		b.complain = append(b.complain, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			b.complain = append(b.complain, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// Do runs actions.
func (b *Tab) Do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.Context, actions...); err != nil {
		b.t.Fatalf("%v; the page says %v", err, b.complain)
	}
}

// Eval returns the value of an expression as text.
func (b *Tab) Eval(js string) string {
	b.t.Helper()
	var v any
	b.Do(chromedp.Evaluate(js, &v))
	return fmt.Sprint(v)
}

// Until waits for an expression to hold.
func (b *Tab) Until(js string) {
	b.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for b.Eval(js) != "true" {
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s; the page says %v\n%s",
				js, b.complain, b.Eval("document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Shoot saves a picture of the page in build/screenshots.
func (b *Tab) Shoot(name string) {
	b.t.Helper()
	var png []byte
	b.Do(chromedp.FullScreenshot(&png, 100))
	dir := filepath.Join("..", "..", "build", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	if len(png) < 10_000 {
		b.t.Errorf("%s: a picture of %d bytes shows nothing", name, len(png))
	}
}

// Quiet fails the test if the page asked another host for anything, or complained.
func (b *Tab) Quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.foreign) > 0 || len(b.complain) > 0 {
		b.t.Errorf("requests to others %v, complaints %v", b.foreign, b.complain)
	}
}
