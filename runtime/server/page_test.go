package server

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

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sie-engine/sie/runtime/service"
)

// tab is a page in a headless browser.
type tab struct {
	context.Context
	t      *testing.T
	origin string

	mu       sync.Mutex
	foreign  []string // requests to other hosts
	complain []string // exceptions, console errors, violations of the policy
}

// browser finds the browser, which the tests declare as a dependency (tools/setup/deps.sh test).
// Call it before a server is started: skipping a test whose server does not listen yet would leave
// the server running.
func browser(t *testing.T) string {
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

// browse opens the server's page.
func (r *rig) browse(path string) *tab {
	r.t.Helper()
	ctx, late := context.WithTimeout(startBrowser(r.t, path), 10*time.Minute)
	r.t.Cleanup(late)
	b := &tab{Context: ctx, t: r.t, origin: "http://" + r.addr}
	chromedp.ListenTarget(ctx, b.event)
	b.do(network.Enable(), log.Enable(), chromedp.Navigate(b.origin+"/"))
	return b
}

func (b *tab) event(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.origin) && !strings.HasPrefix(u, "data:") {
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

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.Context, actions...); err != nil {
		b.t.Fatalf("%v; the page says %v", err, b.complain)
	}
}

// eval returns the value of an expression as text.
func (b *tab) eval(js string) string {
	b.t.Helper()
	var v any
	b.do(chromedp.Evaluate(js, &v))
	return fmt.Sprint(v)
}

// until waits for an expression to hold.
func (b *tab) until(js string) {
	b.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for b.eval(js) != "true" {
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s; the page says %v\n%s",
				js, b.complain, b.eval("document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// shoot saves a picture of the page in build/screenshots.
func (b *tab) shoot(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
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

// quiet fails the test if the page asked another host for anything, or complained.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.foreign) > 0 || len(b.complain) > 0 {
		b.t.Errorf("requests to others %v, complaints %v", b.foreign, b.complain)
	}
}

func TestPage(t *testing.T) {
	chromium := browser(t)
	r := start(t, nil, with(&fakeTasks{}))
	b := r.browse(chromium)
	b.until(`document.getElementById("state").textContent === "ready"`)
	b.until(
		`[...document.querySelectorAll("#models tbody tr")].map(r => r.cells[0].textContent + r.cells[1].textContent).join() === "test/meanloaded,acme/judgeavailable,acme/rerankeravailable"`)

	b.do(chromedp.KeyEvent(kb.Tab))
	if got := b.eval(`document.activeElement.className`); got != "skip" {
		t.Errorf("the first stop by keyboard is %q", got)
	}

	// Encode shows a heat map in which equal lines are 1.00, and the server's timing.
	b.until(`document.querySelector("#encode button.go").disabled === false`)
	b.do(chromedp.SetValue("#encode textarea", "the cat\na dog\nthe cat"),
		chromedp.Click("#encode button.go"))
	b.until(`document.querySelectorAll("#encode .heat td").length === 9 + 1`) // the corner too
	if got := b.eval(
		`[...document.querySelectorAll("#encode .heat tbody tr")].map(r => [...r.cells].slice(1).map(c => c.textContent).join(" ")).join("|")`); !strings.HasPrefix(
		got, "1.00 ") || !strings.HasSuffix(strings.Split(got, "|")[0], " 1.00") ||
		strings.Contains(got, "NaN") {
		t.Errorf("the heat map says %s", got)
	}
	if got := b.eval(`document.querySelector("#encode output").textContent`); !strings.Contains(got,
		"total") || !strings.Contains(got, "tokens") {
		t.Errorf("the timing says %q", got)
	}
	b.until(
		`[...document.querySelectorAll(".tile")].some(t => t.innerText.startsWith("tokens / s") && !t.innerText.includes("–"))`)
	b.until(`document.querySelector(".tile polyline").getAttribute("points").split(" ").length > 5`)
	b.shoot("light-encode")
	b.do(emulation.SetEmulatedMedia().WithFeatures(
		[]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	if got := b.eval(`getComputedStyle(document.body).backgroundColor`); got != "rgb(15, 20, 25)" {
		t.Errorf("dark is %s", got)
	}
	b.shoot("dark-encode")
	b.do(chromedp.EmulateViewport(390, 844))
	b.eval(
		`(() => { const o = new Option("an/id-that-is-longer-than-a-telephone-is-wide-in-hand"); document.querySelector("#encode select").append(o); o.selected = true; return true; })()`)
	if got := b.eval(
		`document.documentElement.scrollWidth + " " + getComputedStyle(document.getElementById("tiles")).gridTemplateColumns.split(" ").length`); got !=
		"390 2" {
		t.Errorf("on a telephone it is wide, with tiles a row: %s", got)
	}
	b.shoot("dark-narrow")
	b.do(chromedp.EmulateViewport(1200, 1500))

	// By keyboard alone: arrows move between the tabs.
	b.do(chromedp.Focus("#tab-encode"), chromedp.KeyEvent(kb.ArrowRight))
	if got := b.eval(
		`document.activeElement.id + document.getElementById("score").hidden + document.getElementById("encode").hidden`); got !=
		"tab-scorefalsetrue" {
		t.Errorf("after an arrow: %s", got)
	}
	b.do(chromedp.SetValue("#score select", reranker), chromedp.SetValue("#score input", "red cat"),
		chromedp.SetValue("#score textarea", "dog\nred cat\ncat"), chromedp.Focus("#score textarea"),
		chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2)))
	b.until(`document.querySelectorAll("#score .bars li").length === 3`)
	if got := b.eval(
		`[...document.querySelectorAll("#score .bars li")].map(l => l.textContent).join("|")`); got !=
		"2.0000  red cat|1.0000  cat|0.0000  dog" {
		t.Errorf("the bars say %s", got)
	}
	if got := b.eval(`document.getElementById("curl").textContent`); !strings.Contains(got,
		"/v1/score/acme/reranker") || !strings.Contains(got, `"query":{"text":"red cat"}`) {
		t.Errorf("curl: %s", got)
	}
	b.shoot("dark-score")
	b.do(chromedp.SetValue("#score input", "blue"), chromedp.Evaluate(
		`document.querySelector("#score input").dispatchEvent(new Event("input", {bubbles: true}))`, nil))
	if got := b.eval(`document.getElementById("curl").textContent`); !strings.Contains(got,
		`"query":{"text":"blue"}`) {
		t.Errorf("curl keeps to what was sent: %s", got)
	}

	b.do(chromedp.SetValue("#filter", "rerank"),
		chromedp.Evaluate(`$("filter").dispatchEvent(new Event("input"))`, nil))
	if got := b.eval(`document.getElementById("count").textContent`); got != "1 of 3" {
		t.Errorf("the filter shows %s", got)
	}
	b.quiet()
}

// The page marks entities at their code points, even behind characters of two UTF-16 units. It asks
// a loading server again when the server says so.
func TestPageExtract(t *testing.T) {
	chromium := browser(t)
	r := start(t, nil)
	b := r.browse(chromium)
	b.until(
		`document.getElementById("state").textContent === "ready" && !document.querySelector("#encode button.go").disabled`)
	// The page lists the models whenever one changes its state. From here on the test supplies
	// them.
	b.eval(
		`(() => {
  let calls = 0;
  sie.fetch = async url => url !== "/v1/extract/m" ? new Response("{}", {status: 404}) : ++calls === 1 ?
    new Response('{"error":{"message":"is loading"}}', {status: 503, headers: {"Retry-After": "1"}}) :
    new Response(JSON.stringify({items: [{entities: [{text: "Ada", label: "person", score: 0.9, start: 3, end: 6},
      {text: "da", label: "x", score: 0.1, start: 4, end: 6}], relations: [], classifications: [{label: "greeting", score: 0.7}], objects: [], data: {}}]}));
  play.models([{name: "m", loaded: true, outputs: ["json"]}]);
  play.models = () => {};
  document.getElementById("tab-extract").click();
  document.querySelector("#extract textarea").value = "🙂🙂 Ada <b>says</b> hi";
  return true;
})()`)
	b.until(
		`document.querySelector("#extract select").value === "m" && !document.querySelector("#extract button.go").disabled`)
	b.do(chromedp.Click("#extract button.go"))
	b.until(`document.querySelector("#extract output").textContent.includes("is loading")`)
	b.until(`document.querySelectorAll("#extract mark").length === 1`)
	if got := b.eval(
		`document.querySelector("#extract .marked").textContent`); got != "🙂🙂 Ada person <b>says</b> hi" {
		t.Errorf("marked: %s", got)
	}
	if got := b.eval(`document.querySelector("#extract .bars li").textContent`); got != "0.7000  greeting" {
		t.Errorf("classes: %s", got)
	}
	b.shoot("light-extract")
	b.quiet()
}

// The table of models says why a model failed, shows widths in the order of the outputs, and drops
// models that a reload removed. An empty answer is shown as empty; a failure is red.
func TestPageModels(t *testing.T) {
	chromium := browser(t)
	r := start(t, nil)
	b := r.browse(chromium)
	b.until(
		`document.getElementById("state").textContent === "ready" && !document.querySelector("#encode button.go").disabled`)
	got := b.eval(
		`(() => {
  socket.onclose = null;
  socket.close();
  offer = async () => {};
  failures.set("a", {code: "CONFIG", message: "no <tokenizer>"});
  table([{name: "a", state: "failed", config: {outputs: ["dense", "sparse", "multivector"], dims: {dense: 1, multivector: 2, sparse: 3}}}]);
  return [...document.querySelectorAll("#models tbody tr")].map(r => [...r.cells].map(c => c.textContent + c.title).join("|")).join("\n");
})()`)
	if got != "a|failed: CONFIGno <tokenizer>|dense, sparse, multivector|1, 3, 2|||" {
		t.Errorf("the table is %q", got)
	}
	for _, c := range []struct{ answer, want string }{
		{`new Response('{"items":[{"entities":[],"relations":[],"classifications":[],"objects":[],"data":{}}]}')`,
			"muted Nothing was found."},
		{`new Response('{"error":{"message":"no such thing"}}', {status: 400})`, "bad 400: no such thing"},
	} {
		b.eval(`(() => {
  sie.fetch = async () => ` + c.answer + `;
  document.querySelector("#extract button.go").disabled = false;
  document.querySelector("#extract output").textContent = "";
  document.getElementById("extract").requestSubmit();
  return true;
})()`)
		b.until(`document.querySelector("#extract output").textContent.length > 1`)
		if got := b.eval(
			`document.querySelector("#extract output").className + " " + document.querySelector("#extract output").textContent + document.querySelector("#extract .result").textContent`); !strings.HasPrefix(
			got, strings.Fields(c.want)[0]) || !strings.Contains(got, strings.SplitN(c.want, " ", 2)[1]) {
			t.Errorf("%s: %s", c.answer, got)
		}
	}
	b.quiet()
}

// On a server with keys the page opens, asks for a key, and then works as it does elsewhere.
func TestPageWithAKey(t *testing.T) {
	chromium := browser(t)
	r := start(t, func(o *Options, _ *service.Options) { o.Keys = guarded(t, "open-sesame") })
	b := r.browse(chromium)
	b.until(`document.getElementById("ask").hidden === false`)
	b.do(chromedp.SendKeys("#key", "open-sesame"), chromedp.Click("#ask button"))
	b.until(`document.getElementById("state").textContent === "ready"`)
	b.until(
		`document.querySelector("#encode button.go").disabled === false && document.getElementById("ask").hidden`)
	b.do(chromedp.Click("#encode button.go"))
	b.until(`document.querySelectorAll("#encode .heat td").length === 26`)
	if strings.Contains(
		b.eval(`document.documentElement.outerHTML + document.getElementById("curl").textContent`),
		"open-sesame") {
		t.Error("the key is shown")
	}
	if strings.Contains(r.log.String(), "open-sesame") {
		t.Error("the key is logged")
	}
}

// The page of the API is made from openapi.json, under the same content security policy.
func TestDocsPage(t *testing.T) {
	chromium := browser(t)
	r := start(t, nil)
	b := r.browse(chromium)
	b.do(chromedp.Navigate(b.origin + "/docs"))
	b.until(`document.querySelectorAll(".route").length > 20`)
	b.eval(
		`(() => { const r = [...document.querySelectorAll(".route")].find(r => r.querySelector("code").textContent === "/v1/models"); r.open = true; r.querySelector("button").click(); return true; })()`)
	b.until(`[...document.querySelectorAll("pre.out")].some(p => p.textContent.startsWith("200 in "))`)
	b.shoot("docs")
	b.quiet()
}
