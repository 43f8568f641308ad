package server

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sie-engine/sie/internal/pages/pagetest"
	"github.com/sie-engine/sie/runtime/service"
)

func TestPage(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, nil, with(&fakeTasks{}))
	b := pagetest.Open(t, chromium, "http://"+r.addr)
	b.Until(`document.getElementById("state").textContent === "ready"`)
	b.Until(
		`[...document.querySelectorAll("#models tbody tr")].map(r => r.cells[0].textContent + r.cells[1].textContent).join() === "test/meanloaded,acme/judgeavailable,acme/rerankeravailable"`)

	b.Do(chromedp.KeyEvent(kb.Tab))
	if got := b.Eval(`document.activeElement.className`); got != "skip" {
		t.Errorf("the first stop by keyboard is %q", got)
	}

	// Encode shows a heat map in which equal lines are 1.00, and the server's timing.
	b.Until(`document.querySelector("#encode button.go").disabled === false`)
	b.Do(chromedp.SetValue("#encode textarea", "the cat\na dog\nthe cat"),
		chromedp.Click("#encode button.go"))
	b.Until(`document.querySelectorAll("#encode .heat td").length === 9 + 1`) // the corner too
	if got := b.Eval(
		`[...document.querySelectorAll("#encode .heat tbody tr")].map(r => [...r.cells].slice(1).map(c => c.textContent).join(" ")).join("|")`); !strings.HasPrefix(
		got, "1.00 ") || !strings.HasSuffix(strings.Split(got, "|")[0], " 1.00") ||
		strings.Contains(got, "NaN") {
		t.Errorf("the heat map says %s", got)
	}
	if got := b.Eval(`document.querySelector("#encode output").textContent`); !strings.Contains(got,
		"total") || !strings.Contains(got, "tokens") {
		t.Errorf("the timing says %q", got)
	}
	b.Until(
		`[...document.querySelectorAll(".tile")].some(t => t.innerText.startsWith("tokens / s") && !t.innerText.includes("–"))`)
	b.Until(`document.querySelector(".tile polyline").getAttribute("points").split(" ").length > 5`)
	b.Shoot("light-encode")
	b.Do(emulation.SetEmulatedMedia().WithFeatures(
		[]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	if got := b.Eval(`getComputedStyle(document.body).backgroundColor`); got != "rgb(15, 20, 25)" {
		t.Errorf("dark is %s", got)
	}
	b.Shoot("dark-encode")
	b.Do(chromedp.EmulateViewport(390, 844))
	b.Eval(
		`(() => { const o = new Option("an/id-that-is-longer-than-a-telephone-is-wide-in-hand"); document.querySelector("#encode select").append(o); o.selected = true; return true; })()`)
	if got := b.Eval(
		`document.documentElement.scrollWidth + " " + getComputedStyle(document.getElementById("tiles")).gridTemplateColumns.split(" ").length`); got !=
		"390 2" {
		t.Errorf("on a telephone it is wide, with tiles a row: %s", got)
	}
	b.Shoot("dark-narrow")
	b.Do(chromedp.EmulateViewport(1200, 1500))

	// By keyboard alone: arrows move between the tabs.
	b.Do(chromedp.Focus("#tab-encode"), chromedp.KeyEvent(kb.ArrowRight))
	if got := b.Eval(
		`document.activeElement.id + document.getElementById("score").hidden + document.getElementById("encode").hidden`); got !=
		"tab-scorefalsetrue" {
		t.Errorf("after an arrow: %s", got)
	}
	b.Do(chromedp.SetValue("#score select", reranker), chromedp.SetValue("#score input", "red cat"),
		chromedp.SetValue("#score textarea", "dog\nred cat\ncat"), chromedp.Focus("#score textarea"),
		chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2)))
	b.Until(`document.querySelectorAll("#score .bars li").length === 3`)
	if got := b.Eval(
		`[...document.querySelectorAll("#score .bars li")].map(l => l.textContent).join("|")`); got !=
		"2.0000  red cat|1.0000  cat|0.0000  dog" {
		t.Errorf("the bars say %s", got)
	}
	if got := b.Eval(`document.getElementById("curl").textContent`); !strings.Contains(got,
		"/v1/score/acme/reranker") || !strings.Contains(got, `"query":{"text":"red cat"}`) {
		t.Errorf("curl: %s", got)
	}
	b.Shoot("dark-score")
	b.Do(chromedp.SetValue("#score input", "blue"), chromedp.Evaluate(
		`document.querySelector("#score input").dispatchEvent(new Event("input", {bubbles: true}))`, nil))
	if got := b.Eval(`document.getElementById("curl").textContent`); !strings.Contains(got,
		`"query":{"text":"blue"}`) {
		t.Errorf("curl keeps to what was sent: %s", got)
	}

	b.Do(chromedp.SetValue("#models-filter", "rerank"),
		chromedp.Evaluate(`$("models-filter").dispatchEvent(new Event("input"))`, nil))
	if got := b.Eval(`document.getElementById("models-count").textContent`); got != "1 of 3" {
		t.Errorf("the filter shows %s", got)
	}
	b.Quiet()
}

// The page marks entities at their code points, even behind characters of two UTF-16 units. It asks
// a loading server again when the server says so.
func TestPageExtract(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, nil)
	b := pagetest.Open(t, chromium, "http://"+r.addr)
	b.Until(
		`document.getElementById("state").textContent === "ready" && !document.querySelector("#encode button.go").disabled`)
	// The page lists the models whenever one changes its state. From here on the test supplies
	// them.
	b.Eval(
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
	b.Until(
		`document.querySelector("#extract select").value === "m" && !document.querySelector("#extract button.go").disabled`)
	b.Do(chromedp.Click("#extract button.go"))
	b.Until(`document.querySelector("#extract output").textContent.includes("is loading")`)
	b.Until(`document.querySelectorAll("#extract mark").length === 1`)
	if got := b.Eval(
		`document.querySelector("#extract .marked").textContent`); got != "🙂🙂 Ada person <b>says</b> hi" {
		t.Errorf("marked: %s", got)
	}
	if got := b.Eval(`document.querySelector("#extract .bars li").textContent`); got != "0.7000  greeting" {
		t.Errorf("classes: %s", got)
	}
	b.Shoot("light-extract")
	b.Quiet()
}

// The table of models says why a model failed, shows widths in the order of the outputs, and drops
// models that a reload removed. An empty answer is shown as empty; a failure is red.
func TestPageModels(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, nil)
	b := pagetest.Open(t, chromium, "http://"+r.addr)
	b.Until(
		`document.getElementById("state").textContent === "ready" && !document.querySelector("#encode button.go").disabled`)
	got := b.Eval(
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
		b.Eval(`(() => {
  sie.fetch = async () => ` + c.answer + `;
  document.querySelector("#extract button.go").disabled = false;
  document.querySelector("#extract output").textContent = "";
  document.getElementById("extract").requestSubmit();
  return true;
})()`)
		b.Until(`document.querySelector("#extract output").textContent.length > 1`)
		if got := b.Eval(
			`document.querySelector("#extract output").className + " " + document.querySelector("#extract output").textContent + document.querySelector("#extract .result").textContent`); !strings.HasPrefix(
			got, strings.Fields(c.want)[0]) || !strings.Contains(got, strings.SplitN(c.want, " ", 2)[1]) {
			t.Errorf("%s: %s", c.answer, got)
		}
	}
	b.Quiet()
}

// On a server with keys the page opens, asks for a key, and then works as it does elsewhere.
func TestPageWithAKey(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, func(o *Options, _ *service.Options) { o.Keys = guarded(t, "open-sesame") })
	b := pagetest.Open(t, chromium, "http://"+r.addr)
	b.Until(`document.getElementById("ask").hidden === false`)
	b.Do(chromedp.SendKeys("#key", "open-sesame"), chromedp.Click("#ask button"))
	b.Until(`document.getElementById("state").textContent === "ready"`)
	b.Until(
		`document.querySelector("#encode button.go").disabled === false && document.getElementById("ask").hidden`)
	b.Do(chromedp.Click("#encode button.go"))
	b.Until(`document.querySelectorAll("#encode .heat td").length === 26`)
	if strings.Contains(
		b.Eval(`document.documentElement.outerHTML + document.getElementById("curl").textContent`),
		"open-sesame") {
		t.Error("the key is shown")
	}
	if strings.Contains(r.log.String(), "open-sesame") {
		t.Error("the key is logged")
	}
}

// The page of the API is made from openapi.json, under the same content security policy.
func TestDocsPage(t *testing.T) {
	chromium := pagetest.Browser(t)
	r := start(t, nil)
	b := pagetest.Open(t, chromium, "http://"+r.addr)
	b.Do(chromedp.Navigate(b.Origin + "/docs"))
	b.Until(`document.querySelectorAll(".route").length > 20`)
	b.Eval(
		`(() => { const r = [...document.querySelectorAll(".route")].find(r => r.querySelector("code").textContent === "/v1/models"); r.open = true; r.querySelector("button").click(); return true; })()`)
	b.Until(`[...document.querySelectorAll("pre.out")].some(p => p.textContent.startsWith("200 in "))`)
	b.Shoot("docs")
	b.Quiet()
}
