package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/pages/pagetest"
)

// pageInterval is the time between two frames for a page: it draws each.
const pageInterval = 200 * time.Millisecond

// rows returns the rows of a table of the page, their cells divided by |.
func rows(b *pagetest.Tab, table string) []string {
	return strings.Split(b.Eval(`[...document.querySelectorAll("#`+table+
		` tbody tr")].map(r => [...r.cells].map(c => c.textContent).join("|")).join("\n")`), "\n")
}

// untilRow waits until a table has a row that begins with a text.
func untilRow(b *pagetest.Tab, table, begin string) {
	b.Until(fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].some(r =>
		[...r.cells].map(c => c.textContent).join("|").startsWith(%q))`, table, begin))
}

// The page shows the cluster as it is now, and its playground sends requests through the gateway.
func TestPage(t *testing.T) {
	chromium := pagetest.Browser(t)
	var keeper *pools.Keeper
	r := start(t, func(o *Options) {
		keeper, o.StatusInterval = o.Pools, pageInterval
		o.Wanted = func() map[bus.Lane]int { return map[bus.Lane]int{testLanes[1]: 2} }
		o.Depths = func() map[bus.Lane]int64 { return map[bus.Lane]int64{testLanes[0]: 7} }
		o.Queues = func() []Waiting {
			return []Waiting{{Lane: testLanes[0], Model: "org/a", Untaken: 3, Unanswered: 5, Rate: 12.5},
				{Lane: testLanes[0], Model: "org/a", Untaken: 1, Unanswered: 1}}
		}
	})
	keepPools(t, keeper)
	a := r.do("POST", "/v1/pools", `{"name":"mine","gpus":{"l4":2},"queue_pool":"default"}`)
	if a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	beat := func(ready bool, models ...string) {
		r.worker("w-1", testLanes[0], func(h *bus.WorkerHeartbeat) {
			h.Ready, h.LoadedModels, h.QueueDepth, h.FreeCredit = ready, models, 3, 1500
			h.LoadingModels, h.FailedModels, h.InflightBatches = []string{"org/b"}, []string{"org/c"}, 2
			h.MemoryUsed, h.MemoryTotal = 1<<30, 2<<30
		})
	}
	beat(true, "org/a")
	b := pagetest.Open(t, chromium, r.url)
	b.Until(`document.getElementById("state").textContent === "ready"`)
	untilRow(b, "models", "org/a|loaded|dense|2||2|")
	const worker = " s|default/l4/default|org/a; loading org/b; failed org/c|3|2|1.0 GiB of 2.0 GiB|1.5 k"
	if got := rows(b, "workers"); len(got) != 1 || !strings.HasPrefix(got[0], "w-1|ready|") ||
		!strings.HasSuffix(got[0], worker) {
		t.Errorf("the workers are %q", got)
	}
	if got, want := rows(b, "lanes"), []string{"default/l4/default|1 of 1||7|3|1.5 k",
		"team/h100/fast|0 of 0|2|not known||0"}; !slices.Equal(got, want) {
		t.Errorf("the lanes are %q, want %q", got, want)
	}
	if got := rows(b, "queues"); !slices.Equal(got, []string{"org/a|default/l4/default|4|6|12.5"}) {
		t.Errorf("the queues are %q", got)
	}
	untilRow(b, "pools", "mine|pending|default|2 × l4|0||")
	untilRow(b, "pools", "default|active||")
	if got := rows(b, "failed"); !slices.Equal(got, []string{"Every request had its answer."}) {
		t.Errorf("failed are %q", got)
	}
	for _, reason := range strings.Split(b.Eval(`Object.keys(why).join()`), ",") {
		code := errs.Code(strings.ToUpper(reason))
		if errs.Lookup(code).Code != code {
			t.Errorf("the page explains %s, which no request fails with", reason)
		}
	}
	if got := b.Eval(`document.getElementById("tenants-section").hidden`); got != "true" {
		t.Error("a gateway without tokens shows tenants")
	}

	// A request that has to wait is sent again; one that fails is told and counted.
	b.Until(`document.querySelector("#encode button.go").disabled === false`)
	r.backend.mu.Lock()
	r.backend.refusal = inference.Refuse(errs.Capacity("l4", 0))
	r.backend.mu.Unlock()
	b.Do(chromedp.SetValue("#encode textarea", "a\nb"), chromedp.Click("#encode button.go"))
	b.Until(`document.querySelector("#encode output").textContent.includes("again in")`)
	untilRow(b, "failed", "provisioning|")
	r.backend.mu.Lock()
	r.backend.refusal = nil
	r.backend.mu.Unlock()
	b.Until(`document.querySelectorAll("#encode .heat td").length === 4 + 1`)
	said := b.Eval(`document.querySelector("#encode output").textContent`)
	if !strings.Contains(said, "3 tokens") {
		t.Errorf("the timing says %q", said)
	}
	b.Until(`[...document.querySelectorAll(".tile")].some(t => t.innerText.startsWith("requests / s") && !t.innerText.includes("–"))`)
	b.Shoot("gateway")
	b.Do(emulation.SetEmulatedMedia().WithFeatures(
		[]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	b.Shoot("gateway-dark")
	b.Do(chromedp.EmulateViewport(390, 844))
	if got := b.Eval(`document.documentElement.scrollWidth`); got != "390" {
		t.Errorf("on a telephone it is %s wide", got)
	}
	b.Shoot("gateway-narrow")
	b.Do(chromedp.EmulateViewport(1200, 1500))

	// A worker that is not ready is shown so with the next frame, and its models are asked about.
	beat(false)
	untilRow(b, "workers", "w-1|not ready|")
	b.Until(`document.getElementById("state").textContent === "no workers"`)
	untilRow(b, "lanes", "default/l4/default|0 of 1|")

	b.Quiet() // until here: a refusal of the page itself is a line in the console
	b.Do(chromedp.Navigate(b.Origin + "/docs"))
	b.Until(`[...document.querySelectorAll("h2")].some(h => h.textContent === "Cluster")`)
	b.Until(`["X-SIE-Hold", "RATE_LIMITED", "content_conflict"]
		.every(x => document.body.textContent.includes(x))`)
}

// The page has as many elements with 500 workers and 2,000 models as with 50 of each: a table shows
// a page of its rows, which the keyboard turns, and finds the others by their words.
func TestPageOfALargeCluster(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, func(o *Options) { o.StatusInterval = time.Second })
	var list []api.ModelInfo
	for i := range 2000 {
		list = append(list, api.ModelInfo{Name: fmt.Sprintf("org/model-%04d", i), Outputs: []string{"dense"},
			State: "available", GatewayInfo: &api.GatewayInfo{}})
	}
	r.backend.list = list
	for i := range 500 {
		r.worker(fmt.Sprintf("worker-%03d", i), testLanes[i%2], func(h *bus.WorkerHeartbeat) {
			h.Ready = i != 321
			for m := range 20 {
				h.LoadedModels = append(h.LoadedModels, fmt.Sprintf("org/model-%04d", (i+m)%2000))
			}
		})
	}
	b := pagetest.Open(t, chromium, r.url)
	untilRow(b, "workers", "worker-321|not ready|") // the first: it is what to look at
	b.Until(`document.querySelectorAll("#models tbody tr").length === 50`)
	const elements = `[...document.body.querySelectorAll("*")].filter(e => e.tagName !== "OPTION").length`
	var n int
	if _, err := fmt.Sscan(b.Eval(elements), &n); err != nil || n > 2500 {
		t.Errorf("the page has %d elements (%v)", n, err)
	}
	if got := b.Eval(`document.querySelectorAll("#workers tbody tr").length`); got != "50" {
		t.Errorf("%s rows of workers", got)
	}
	if got := b.Eval(`document.getElementById("workers-count").textContent`); got != "500 of 500" {
		t.Errorf("counted %q", got)
	}
	later := `[...document.querySelectorAll("#workers-section button")].find(b => b.textContent === "Later")`
	b.Eval(later + `.focus()`)
	for range 20 { // ten pages: the last stays
		b.Do(chromedp.KeyEvent(kb.Enter))
	}
	if got := rows(b, "workers"); len(got) != 50 || !strings.HasPrefix(got[49], "worker-499|") {
		t.Errorf("the last page: %q", got)
	}
	if got := b.Eval(`document.activeElement.textContent + document.activeElement.getAttribute("aria-disabled")`); got != "Latertrue" {
		t.Errorf("at the end the keyboard is at %s", got)
	}
	b.Do(chromedp.SendKeys("#workers-filter", "org/model-0042 fast"))
	b.Until(`document.getElementById("workers-count").textContent === "10 of 500"`)
	b.Do(chromedp.SendKeys("#workers-filter", " no such word"))
	b.Until(`document.querySelector("#workers tbody").textContent === "No row has these words."`)
	b.Shoot("gateway-500")
	b.Quiet()
}

// Names that workers, clients and models bring are text, whatever is in them, and long ones break.
func TestPageOfHostileNames(t *testing.T) {
	chromium := pagetest.Browser(t)
	const markup = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`
	token := `<img/src=x/onerror=window['hit']=1`
	long := strings.Repeat("a-name-without-an-end-", 17)
	r := start(t, func(o *Options) {
		o.StatusInterval = pageInterval
		o.Queues = func() []Waiting { return []Waiting{{Lane: testLanes[0], Model: markup, Unanswered: 1}} }
	})
	r.backend.list = []api.ModelInfo{
		{Name: markup, State: markup, Outputs: []string{"dense", markup}, GatewayInfo: &api.GatewayInfo{}},
		{Name: long, State: "failed", Outputs: []string{"dense"}, GatewayInfo: &api.GatewayInfo{},
			LastError: &api.ModelError{Code: markup, Message: markup}}}
	r.worker(token, bus.Lane{Pool: token, Profile: token, Bundle: token}, func(h *bus.WorkerHeartbeat) {
		h.LoadedModels, h.LoadingModels, h.FailedModels = []string{markup}, []string{long}, []string{markup}
	})
	b := pagetest.Open(t, chromium, r.url)
	untilRow(b, "models", markup+"|"+markup+"|dense, "+markup)
	untilRow(b, "models", long+"|failed: "+markup)
	untilRow(b, "workers", token+"|ready|")
	untilRow(b, "queues", markup+"|")
	untilRow(b, "pools", token+"|active|")
	untilRow(b, "lanes", token+"/"+token+"/"+token+"|1 of 1|")
	b.Do(chromedp.Click("#encode button.go"))
	b.Until(`document.querySelector("#encode output").className === "bad"`) // the fake has no such model
	for _, width := range []int64{1200, 390} {
		b.Do(chromedp.EmulateViewport(width, 900))
		if got := b.Eval(`document.documentElement.scrollWidth`); got != fmt.Sprint(width) {
			t.Errorf("at %d it is %s wide", width, got)
		}
	}
	b.Shoot("gateway-names")
	if got := b.Eval(`String(window.hit) + document.images.length + document.querySelectorAll("main script, main i").length`); got !=
		"undefined00" {
		t.Errorf("a name became more than text: %s", got)
	}
	// Whatever a script of the page tries, the browser makes no markup of text.
	if got := b.Eval(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "made"; } catch (e) { return e.name; } })()`); got !=
		"TypeError" {
		t.Errorf("innerHTML: %s", got)
	}
}

// With tokens the page asks for one, keeps it in memory alone, and shows what it may see.
func TestPageWithTokens(t *testing.T) {
	chromium := pagetest.Browser(t)
	keys := tenants(t, `
- {name: search, tokens: [search-token], pools: [team], items_per_s: 50}
- {name: other, tokens: [other-token]}
- {name: watcher, tokens: [watch-token], roles: [metrics]}
`)
	r := start(t, func(o *Options) { o.Keys, o.StatusInterval = keys, pageInterval })
	r.worker("w-1", testLanes[0], nil)
	b := pagetest.Open(t, chromium, r.url)
	b.Until(`document.getElementById("ask").hidden === false`)
	use := func(token string) {
		t.Helper()
		b.Do(chromedp.SendKeys("#key", token), chromedp.Click("#ask button"))
	}
	use("wrong-token")
	b.Until(`document.getElementById("ask").textContent.includes("does not know this API key")`)
	use("search-token")
	b.Until(`document.getElementById("state").textContent === "ready"`)
	untilRow(b, "tenants", "search|normal|0|0|0||")
	if got := rows(b, "tenants"); len(got) != 1 || !strings.HasSuffix(got[0], "|50 items / s; pools team") {
		t.Errorf("the tenant sees %q", got)
	}
	if got := rows(b, "pools"); len(got) != 1 || !strings.HasPrefix(got[0], "team|pending|") {
		t.Errorf("the tenant sees the pools %q", got)
	}
	b.Until(`document.querySelector("#encode button.go").disabled === false`)
	b.Do(chromedp.SetValue("#encode textarea", "a\nb"), chromedp.Click("#encode button.go"))
	b.Until(`document.querySelectorAll("#encode .heat td").length === 4 + 1`)
	untilRow(b, "tenants", "search|normal|1|2|0|")
	b.Shoot("gateway-token")
	kept := b.Eval(`document.documentElement.outerHTML + document.getElementById("key").value + document.cookie +
		JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + location.href`)
	if strings.Contains(kept, "search-token") {
		t.Error("the token is more than in memory")
	}
	if strings.Contains(r.log.String(), "-token") {
		t.Error("a token is logged")
	}
	// What answers for the gateway in between, and not as it does, is no end of asking.
	b.Eval(`(() => {
		const real = window.fetch, page = () => new Response("<p>sign in");
		window.fetch = async (url, o) => url === "/v1/pools" ? page() : real(url, o);
		window.plain = () => { window.fetch = real; return true; };
		return true;
	})()`)
	b.Until(`document.getElementById("pools-section").hidden`)
	b.Eval(`plain()`)
	b.Until(`!document.getElementById("pools-section").hidden`)
	// The token of a machine that watches sees every tenant, and no pools or models.
	b.Do(chromedp.Navigate(b.Origin + "/"))
	b.Until(`document.getElementById("ask").hidden === false`)
	use("watch-token")
	b.Until(`document.getElementById("state").textContent === "ready"`)
	untilRow(b, "tenants", "watcher|")
	if got := rows(b, "tenants"); len(got) != 3 {
		t.Errorf("the watcher sees %q", got)
	}
	b.Until(`document.getElementById("pools-section").hidden`)
}
