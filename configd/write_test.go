package configd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/weights/bucket"
)

const modelsPath = "/v1/configs/models"

// document returns a model file with one profile.
func document(id string, tokens int) string {
	return fmt.Sprintf("sie_id: %s\nhf_id: org/x\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\n"+
		"profiles:\n  default: {adapter_path: 'sie_server.adapters.bert_flash:X', max_batch_tokens: %d}\n", id, tokens)
}

// asking sends a request with a key and returns the answer with its JSON.
type asking func(method, path, key, body string) (*answered, map[string]any)

// start serves the models of testdata and what a place has.
func start(t *testing.T, place ledger.Place, n configd.Notifier) (*configd.Server, asking) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(context.Background(), place, ledger.NewWriter("test"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, ask := serveWith(t, configd.Options{Ledger: l, Notifier: n})
	load(t, s)
	return s, func(method, path, key, body string) (*answered, map[string]any) {
		t.Helper()
		a := ask(method, path, map[string]string{"Idempotency-Key": key}, body)
		v, _ := a.value(t).(map[string]any)
		return a, v
	}
}

func directory(t *testing.T, path string) ledger.Place {
	t.Helper()
	p, err := ledger.OpenPlace(path, ledger.NewWriter("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Models, the epoch and the answers of keys survive a restart.
func TestARestartForgetsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	place := directory(t, path)
	_, ask := start(t, place, nil)
	first, _ := ask("POST", modelsPath, "k", document("new/a", 8))
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if a, _ := ask("PUT", modelsPath+"/org/plain", "", document("org/plain", 3)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a, _ := ask("DELETE", modelsPath+"/new/a", "d", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	_, epoch := ask("GET", "/v1/configs/epoch", "", "")
	if err := place.Close(); err != nil {
		t.Fatal(err)
	}
	_, ask = start(t, directory(t, path), nil)
	if _, again := ask("GET", "/v1/configs/epoch", "", ""); again["bundle_config_hashes_hash"] !=
		epoch["bundle_config_hashes_hash"] || again["epoch"] != 3.0 {
		t.Errorf("%v, before %v", again, epoch)
	}
	// the answer of then, although the model is gone: the change happened once
	if a, _ := ask("POST", modelsPath, "k", document("new/a", 8)); string(a.body) != string(first.body) {
		t.Errorf("%d %s, want %s", a.status, a.body, first.body)
	}
	if a, v := ask("DELETE", modelsPath+"/new/a", "d", ""); v["deleted"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, other := range []string{document("new/a", 9), ""} {
		if a, _ := ask("POST", modelsPath, "k", other); a.status != 422 ||
			!strings.Contains(string(a.body), "idempotency_mismatch") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a, _ := ask("GET", modelsPath+"/new/a", "", ""); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Many requests with one key at once change the configuration once and all get the same answer.
func TestOneKeyAtOnce(t *testing.T) {
	_, ask := start(t, ledger.Memory(), nil)
	answers := make([]string, 16)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			a, _ := ask("POST", modelsPath, "k", document("new/a", 8))
			answers[i] = fmt.Sprint(a.status, string(a.body))
		})
	}
	all.Wait()
	for _, a := range answers {
		if a != answers[0] || !strings.HasPrefix(a, "201") {
			t.Errorf("%s and %s", a, answers[0])
		}
	}
	if _, v := ask("GET", "/v1/configs/epoch", "", ""); v["epoch"] != 1.0 {
		t.Errorf("%v", v)
	}
}

// breaking is a place whose Puts fail n times.
type breaking struct {
	ledger.Place
	err error
	n   int
}

func (b *breaking) Put(ctx context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	if b.n > 0 {
		b.n--
		return "", b.err
	}
	return b.Place.Put(ctx, key, data, when)
}

// A change that the store does not take is a 503 which changes nothing, also under a key; the same
// request is right afterwards.
func TestABrokenStoreChangesNothing(t *testing.T) {
	for _, err := range []error{
		errors.New("read-only file system"), bucket.ErrChanged, context.DeadlineExceeded,
	} {
		place := &breaking{Place: ledger.Memory(), err: err}
		_, ask := start(t, place, nil)
		before, _ := ask("GET", "/v1/configs/epoch", "", "")
		for _, method := range []string{"POST", "PUT"} {
			path := modelsPath
			if method == "PUT" {
				path += "/new/a"
			}
			place.n = 1
			a, _ := ask(method, path, "key-"+method, document("new/a", 8))
			if a.status != 503 || !strings.Contains(string(a.body), "config_store_unavailable") {
				t.Errorf("%v: %d %s", err, a.status, a.body)
			}
		}
		if now, _ := ask("GET", "/v1/configs/epoch", "", ""); string(now.body) != string(before.body) {
			t.Errorf("%v: %s", err, now.body)
		}
		a, v := ask("POST", modelsPath, "key-POST", document("new/a", 8))
		if a.status != 201 || v["epoch"] != 1.0 {
			t.Errorf("%v: %d %s", err, a.status, a.body)
		}
	}
}

// Another writer ends this one's writing with a 503 that names it; reading goes on.
func TestAnotherWriterEndsWriting(t *testing.T) {
	place := ledger.Memory()
	_, one := start(t, place, nil)
	s, two := start(t, place, nil)
	if a, _ := one("POST", modelsPath, "", document("new/a", 8)); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a, _ := two("POST", modelsPath, "", document("new/b", 8))
	if a.status != 503 || !strings.Contains(string(a.body), "config_store_taken") {
		t.Errorf("%d %s", a.status, a.body)
	}
	var taken *ledger.TakenError
	if err := <-s.Lost(); !errors.As(err, &taken) || taken.By.Name != "test" {
		t.Errorf("%v", err)
	}
	if a, _ := two("GET", modelsPath, "", ""); a.status != 200 {
		t.Errorf("%d", a.status)
	}
}

// dry_run says what would change, and changes nothing.
func TestDryRun(t *testing.T) {
	_, ask := start(t, directory(t, t.TempDir()), nil)
	for _, c := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"POST", "", document("new/a", 8), `"affected_bundles":["fast"],"changed":true`, 200},
		{"PUT", "/org/plain", document("org/plain", 8), `"affected_bundles":["candle","default","fast"],"changed":true`, 200},
		{"DELETE", "/new/a", "", `"affected_bundles":[],"changed":false`, 200},
		{"POST", "", "a: 1", "validation_error", 422},
	} {
		a, _ := ask(c.method, modelsPath+c.path+"?dry_run=true", "", c.body)
		if a.status != c.status || !strings.Contains(string(a.body), c.want) {
			t.Errorf("%s %s: %d %s, want %s", c.method, c.path, a.status, a.body, c.want)
		}
	}
	if _, v := ask("GET", "/v1/configs/epoch", "", ""); v["epoch"] != 0.0 {
		t.Errorf("%v", v)
	}
}

// Hostile documents are refused with the documented status, and the next request is right.
func TestHostileDocuments(t *testing.T) {
	_, ask := start(t, ledger.Memory(), nil)
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	for _, c := range []struct {
		what, body string
		status     int
	}{
		{"billion laughs", laughs, 400}, {"NUL", "sie_id: a\x00b\n", 400}, {"tabs", "sie_id:\n\t- a\n", 400},
		{"not UTF-8", "sie_id: \xff\n", 400}, {"two keys", "sie_id: a\nsie_id: a\n", 400},
		{"two profiles", document("new/a", 1) + "  default: {extends: x}\n", 400},
		{"an unknown key", document("new/a", 1) + "bogus: 1\n", 422},
		{"an id of 300 bytes", document(strings.Repeat("x", 300), 1), 400}, {"__", document("a__b", 1), 400},
		{"..", document("a/../b", 1), 400}, {"an escaped NUL", document(`"a\0b"`, 1), 400},
		{"two ids", "model_id: b\n" + document("a", 1), 400},
		{"one id twice", "model_id: a/b\n" + document("a/b", 1), 201},
		{"two documents", document("a", 1) + "---\n" + document("b", 1), 400},
		{"a tag", "!!python/object:os.system x", 400},
		{"deep JSON", strings.Repeat("[", 100_000), 400}, {"1 MiB", strings.Repeat("#", 1<<20), 400},
		{"1 MiB + 1", strings.Repeat("#", 1<<20+1), 413},
	} {
		a, v := ask("POST", modelsPath, "", c.body)
		detail, _ := v["detail"].(map[string]any)
		if a.status != c.status || c.status != 201 && detail["error"] == nil {
			t.Errorf("%s: %d %.300s, want %d", c.what, a.status, a.body, c.status)
		}
	}
	if a, _ := ask("POST", modelsPath, "", document("new/a", 1)); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// ear is a Notifier that keeps what it is told.
type ear struct {
	away   bool
	deltas []configd.Delta
}

func (e *ear) Producer() string { return "sie-config-ear" }
func (e *ear) Connected() bool  { return !e.away }
func (e *ear) Notify(d []configd.Delta) []string {
	e.deltas = append(e.deltas, d...)
	return []string{"nats_publish_failed: nobody is there"}
}

// Each change is told once for each bundle that it concerns, removals too; what changes nothing is
// not told, and without NATS nothing is changed.
func TestDeltas(t *testing.T) {
	e := &ear{}
	_, ask := start(t, directory(t, t.TempDir()), e)
	a, v := ask("POST", modelsPath, "", document("new/a", 8))
	if a.status != 201 || v["router_id"] != "sie-config-ear" || len(v["warnings"].([]any)) != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	ask("POST", modelsPath, "", document("new/a", 8))
	ask("PUT", modelsPath+"/org/plain", "", document("org/plain", 8))
	ask("PUT", modelsPath+"/org/plain", "", document("org/plain", 8))
	ask("DELETE", modelsPath+"/org/plain", "", "")
	ask("DELETE", modelsPath+"/new/a", "", "")
	var told []string
	for _, d := range e.deltas {
		told = append(told, fmt.Sprint(d.Epoch, d.Bundle, d.Model, d.Deleted))
		_, export := ask("GET", "/v1/configs/export", "", "")
		hashes := export["bundle_config_hashes"].(map[string]any)
		if d.Epoch == 4 && hashes[d.Bundle] != d.Hash {
			t.Errorf("%+v", d)
		}
		text, err := json.Marshal(d)
		if err != nil || !strings.Contains(string(text), `"bundle_pool_config_hashes"`) {
			t.Errorf("%s %v", text, err)
		}
	}
	want := "1fastnew/afalse 2fastorg/plainfalse 2defaultorg/plainfalse 2candleorg/plainfalse " +
		"3fastorg/plainfalse 3defaultorg/plainfalse 3candleorg/plainfalse 4fastnew/atrue"
	if got := strings.Join(told, " "); got != want {
		t.Errorf("told %s", got)
	}
	e.away = true
	if a, _ := ask("POST", modelsPath, "", document("new/b", 8)); a.status != 503 ||
		!strings.Contains(string(a.body), "nats_unavailable") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The answer of a key stays when its request changed nothing, whatever is changed after it.
func TestTheAnswerOfNoChangeStays(t *testing.T) {
	_, ask := start(t, directory(t, filepath.Join(t.TempDir(), "store")), nil)
	for _, key := range []string{"", "k"} { // the second changes nothing
		if a, _ := ask("POST", modelsPath, key, document("new/a", 8)); a.status/100 != 2 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a, _ := ask("DELETE", modelsPath+"/new/a", "d", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a, _ := ask("POST", modelsPath, "k", document("new/a", 8)); a.status != 200 {
		t.Errorf("the change is made again: %d %s", a.status, a.body)
	}
	if a, _ := ask("GET", modelsPath+"/new/a", "", ""); a.status != 404 {
		t.Errorf("the removed model is back: %d %s", a.status, a.body)
	}
	if a, _ := ask("POST", modelsPath, "k", document("new/a", 9)); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A value of dry_run that says neither yes nor no is refused: the caller may mean that nothing is
// to change.
func TestDryRunIsYesOrNo(t *testing.T) {
	_, ask := start(t, ledger.Memory(), nil)
	for query, status := range map[string]int{
		"true": 200, "True": 200, "1": 200, "yes": 400, "": 400, "2": 400,
	} {
		a, _ := ask("POST", modelsPath+"?dry_run="+query, "", document("new/a", 8))
		if a.status != status || status == 400 && !strings.Contains(string(a.body), "dry_run") {
			t.Errorf("dry_run=%s: %d %s, want %d", query, a.status, a.body, status)
		}
	}
	if a, _ := ask("GET", modelsPath+"/new/a", "", ""); a.status != 404 {
		t.Errorf("a dry run changed something: %d", a.status)
	}
	if a, _ := ask("POST", modelsPath+"?dry_run=false", "", document("new/a", 8)); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// JSON that is nested deeply takes no more memory than its bytes.
func TestNestedJSONIsNoBomb(t *testing.T) {
	_, ask := start(t, ledger.Memory(), nil)
	body := `{"a":` + strings.Repeat("[", 3000) + strings.Repeat("0,", 30000) + "0" +
		strings.Repeat("]", 3000) + "}"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if a, _ := ask("POST", modelsPath, "", body); a.status != 400 {
		t.Errorf("%d %.200s", a.status, a.body)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("a body of %d bytes took %d", len(body), took)
	}
}

// A change of what the config hashes leave out changes the hash of the document, and nothing else
// does: not what is written in other words, and not another model.
func TestTheHashOfADocument(t *testing.T) {
	_, ask := start(t, directory(t, t.TempDir()), nil)
	read := func() (document string, config any) {
		t.Helper()
		_, export := ask("GET", "/v1/configs/export", "", "")
		for _, x := range export["models"].([]any) {
			if m := x.(map[string]any); m["model_id"] == "new/a" {
				document, _ = m["model_document_hash"].(string)
				config = fmt.Sprint(m["model_config_hashes"], export["bundle_config_hashes"])
			}
		}
		return document, config
	}
	put := func(id, text string) {
		t.Helper()
		if a, _ := ask("PUT", modelsPath+"/"+id, "", text); a.status/100 != 2 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	text := document("new/a", 8)
	put("new/a", text)
	first, config := read()
	seen := map[string]bool{"": true, first: true}
	for _, c := range []struct{ old, new string }{
		{"hf_id: org/x", "hf_id: org/y"}, {"dim: 8", "dim: 16"},
		{"inputs:", "max_sequence_length: 64\ninputs:"}, {"inputs:", "weights_path: /w\ninputs:"},
	} {
		put("new/a", strings.Replace(text, c.old, c.new, 1))
		hash, now := read()
		if seen[hash] || now != config {
			t.Errorf("%s: the hash %q, the config hashes %v, before %v", c.new, hash, now, config)
		}
		seen[hash] = true
	}
	put("new/a", "# in other words\n"+text)
	if hash, _ := read(); hash != first {
		t.Errorf("a comment: %q, before %q", hash, first)
	}
	put("new/b", document("new/b", 8))
	if hash, now := read(); hash != first || now == config {
		t.Errorf("another model: %q, before %q", hash, first)
	}
}
