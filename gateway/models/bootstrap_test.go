package models_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/confighash"
)

// control is a sie-config without a network: what it answers, and when it was asked.
type control struct {
	mu      sync.Mutex
	epoch   uint64
	hash    string
	configs string
	docs    map[string]string // raw_yaml by id
	json    map[string]bool   // ids that are sent as model_config alone
	said    map[string]string // the hashes of documents by id
	fail    func(path string) (int, string)
	asked   []string
	times   []time.Time
	token   string
}

func (c *control) RoundTrip(q *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q.URL.Path)
	if q.URL.Path == "/v1/configs/epoch" {
		c.times = append(c.times, time.Now())
	}
	c.token = q.Header.Get("Authorization")
	status, body := 200, ""
	if c.fail != nil {
		if status, body = c.fail(q.URL.Path); status == 0 {
			return nil, errors.New("connection refused")
		}
	}
	if body == "" {
		body = c.answer(q.URL.Path)
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{}, Request: q}, nil
}

func (c *control) answer(path string) string {
	var v any
	switch path {
	case "/v1/configs/epoch":
		docs, _ := json.Marshal(c.docs)
		v = map[string]any{"epoch": c.epoch, "bundles_hash": c.hash, "bundle_config_hashes_hash": c.configs,
			"models_hash": string(docs)}
	case "/v1/configs/bundles":
		v = map[string]any{"bundles": []any{map[string]any{"bundle_id": "fast"},
			map[string]any{"bundle_id": "default"}}}
	case "/v1/configs/bundles/default":
		return bundleA + "source: filesystem\nengine: pytorch\n"
	case "/v1/configs/bundles/fast":
		return bundleB
	case "/v1/configs/export":
		list := []any{}
		for id, doc := range c.docs {
			x := map[string]any{"model_id": id, "raw_yaml": doc}
			if said := c.said[id]; said != "" {
				x["model_document_hash"] = said
			}
			if m, _, err := catalog.ParseModel("x", []byte(doc)); c.json[id] && err == nil {
				x["model_config"], x["raw_yaml"] = m.Document(), nil
			}
			list = append(list, x)
		}
		v = map[string]any{"snapshot_version": 1, "epoch": c.epoch, "models": list}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (c *control) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *control) take() (asked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, c.asked = c.asked, nil
	return asked
}

func newControl() *control {
	return &control{epoch: 3, hash: "h1", configs: "c1", json: map[string]bool{"org/fast": true},
		docs: map[string]string{
			"org/both": doc("org/both", "", "sentence_transformer", "bert_flash"),
			"org/fast": doc("org/fast", "", "bert_flash"),
		}}
}

// follow starts a Bootstrap of c in a bubble.
func follow(t *testing.T, c *control, log io.Writer) (*models.Registry, *models.Bootstrap) {
	t.Helper()
	r := models.New(models.Options{Fleet: fleet.New(slog.New(slog.DiscardHandler)),
		Lanes: []bus.Lane{laneOf("p/cpu/default"), laneOf("p/cpu/fast")}})
	b, err := models.NewBootstrap(models.BootstrapOptions{URL: "http://config:8080/", Token: "secret",
		Log: slog.New(slog.NewTextHandler(log, nil)), Client: &http.Client{Transport: c}}, r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return r, b
}

func ids(r *models.Registry) (out []string) {
	for _, m := range r.List() {
		out = append(out, m.Name)
	}
	return out
}

// A gateway has what sie-config exports: an export replaces all models, and each of the three signs
// of a change is seen with the next poll.
func TestBootstrapFollowsSieConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		r, b := follow(t, c, io.Discard)
		synctest.Wait()
		if got := ids(r); !slices.Equal(got, []string{"org/both", "org/both:other", "org/fast"}) {
			t.Fatalf("%v", got)
		}
		v, ok := r.Version()
		docs, _ := json.Marshal(c.docs)
		if want := (models.Version{Epoch: 3, BundlesHash: "h1", ConfigsHash: "c1",
			ModelsHash: string(docs)}); !ok || v != want {
			t.Errorf("%+v", v)
		}
		if want := "Bearer secret"; c.token != want || c.take()[0] != "/v1/configs/epoch" {
			t.Errorf("token %q", c.token)
		}
		m, err := r.Find("org/both")
		if err != nil || m.Entry.MaxBatchTokens != 8 {
			t.Errorf("%+v %v", m, err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := c.take(); !slices.Equal(got, []string{"/v1/configs/epoch"}) {
			t.Errorf("without a change: %v", got)
		}
		for name, change := range map[string]func(){
			"epoch":              func() { c.epoch++ },
			"an earlier epoch":   func() { c.epoch -= 2 },
			"bundles_hash":       func() { c.hash += "x" },
			"config hashes hash": func() { c.configs += "x" },
		} {
			c.set(change)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if got := c.take(); !slices.Contains(got, "/v1/configs/export") ||
				!slices.Contains(got, "/v1/configs/bundles/default") {
				t.Errorf("%s: %v", name, got)
			}
		}
		c.set(func() { delete(c.docs, "org/both"); c.epoch++ })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := ids(r); !slices.Equal(got, []string{"org/fast"}) {
			t.Errorf("after a model was removed: %v", got)
		}
		if n, degraded := b.Failures(); n != 0 || degraded {
			t.Errorf("%d failures", n)
		}
	})
}

// Deltas are lost, doubled, late and forged, sie-config is away for a while, and its epoch goes
// back, also to the number that a gateway has of other models: 35 s after the last change, or after
// it is back, a gateway has what sie-config has.
func TestConverges(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			c := newControl()
			r, b := follow(t, c, io.Discard)
			away := func(string) (int, string) { return 0, "" }
			for range 60 {
				id := "org/" + string(rune('a'+rnd.IntN(4)))
				switch n := rnd.IntN(10); {
				case n < 3:
					c.set(func() { c.epoch++; c.docs[id] = doc(id, "", "bert_flash") })
				case n < 4:
					c.set(func() { c.epoch++; delete(c.docs, id) })
				case n < 5: // an older store, to which something else was added
					c.set(func() { c.docs[id] = doc(id, "", "sentence_transformer") })
				case n < 6:
					c.set(func() { c.epoch = uint64(rnd.IntN(int(c.epoch) + 1)) })
				case n < 7:
					c.set(func() {
						if c.fail = nil; rnd.IntN(2) == 0 {
							c.fail = away
						}
					})
				default:
					models.Hear(b, fmt.Appendf(nil, `{"router_id":%q,"epoch":%d}`,
						[]string{"sie-config", "evil"}[rnd.IntN(2)], rnd.IntN(99)), []string{"sie-config"})
				}
				time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
			}
			c.set(func() { c.fail = nil })
			time.Sleep(35 * time.Second)
			synctest.Wait()
			v, _ := r.Version()
			if v.Epoch != c.epoch {
				t.Errorf("seed %d: epoch %d, sie-config has %d", seed, v.Epoch, c.epoch)
			}
			for _, m := range r.Config().Catalog.Models() {
				if !c.json[m.ID] && string(m.Source()) != c.docs[m.ID] {
					t.Errorf("seed %d: %s is %q, at sie-config %q", seed, m.ID, m.Source(), c.docs[m.ID])
				}
			}
			if n := len(r.Config().Catalog.Models()); n != len(c.docs) {
				t.Errorf("seed %d: %d models, sie-config has %d", seed, n, len(c.docs))
			}
		})
	}
}

// While sie-config is away, or answers nonsense, the last models stay; it is asked again after 1 s,
// then after twice as long each time, up to 30 s; no answer is read without a bound.
func TestBootstrapKeepsTheLastGoodModels(t *testing.T) {
	only := func(path string, status int, body string) func(string) (int, string) {
		return func(p string) (int, string) {
			if p == path {
				return status, body
			}
			return 200, ""
		}
	}
	const changed = `{"epoch":9,"bundles_hash":"x","bundle_config_hashes_hash":"y"}`
	const epoch, bundles, export = "/v1/configs/epoch", "/v1/configs/bundles", "/v1/configs/export"
	for name, fail := range map[string]func(string) (int, string){
		"away":              func(string) (int, string) { return 0, "" },
		"forbidden":         func(string) (int, string) { return 403, `{"detail":"Invalid token"}` },
		"no JSON":           only(epoch, 200, "hello"),
		"no bundles yet":    only(epoch, 200, `{"epoch":9,"bundles_hash":""}`),
		"a negative epoch":  only(epoch, 200, `{"epoch":-1,"bundles_hash":"x"}`),
		"bundle missing":    only(bundles+"/fast", 404, "{}"),
		"bundle broken":     only(bundles+"/fast", 200, "name: fast\n"),
		"another bundle":    only(bundles+"/fast", 200, bundleA),
		"many bundles":      only(bundles, 200, `{"bundles":[`+strings.Repeat("{},", 256)+`{}]}`),
		"bundle twice":      only(bundles, 200, `{"bundles":[{"bundle_id":"fast"},{"bundle_id":"fast"}]}`),
		"export fails":      only(export, 500, "oops"),
		"another version":   only(export, 200, `{"snapshot_version":2}`),
		"half an export":    only(export, 200, `{"snapshot_version":1,"models":[`),
		"an endless answer": only(epoch, 200, strings.Repeat(" ", 1<<20)+"{}"),
		"a byte too much":   only(epoch, 200, changed+strings.Repeat(" ", 1<<20+1-len(changed))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newControl()
				var log bytes.Buffer
				r, b := follow(t, c, &log)
				synctest.Wait()
				before, _ := r.Version()
				c.set(func() { c.epoch++; c.hash += "x"; c.fail = fail; c.times = nil })
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if v, _ := r.Version(); v != before || len(ids(r)) != 3 {
					t.Errorf("%+v, %v", v, ids(r))
				}
				var gaps []string
				for i := 1; i < len(c.times); i++ {
					gaps = append(gaps, fmt.Sprint(c.times[i].Sub(c.times[i-1])))
				}
				want := []string{"1s", "2s", "4s", "8s", "16s", "30s", "30s", "30s"}
				if len(gaps) < 10 || !slices.Equal(gaps[:8], want) {
					t.Errorf("asked after %v, want %v", gaps, want)
				}
				if n, degraded := b.Failures(); n < 10 || !degraded {
					t.Errorf("%d failures, degraded %v", n, degraded)
				}
				if text := log.String(); strings.Contains(text, "secret") || len(text) > 64<<10 {
					t.Errorf("a log of %d bytes:\n%.500s", len(text), text)
				}
				c.set(func() { c.fail = nil })
				time.Sleep(time.Minute)
				synctest.Wait()
				if v, _ := r.Version(); v.Epoch != 4 {
					t.Errorf("after it is back: %+v", v)
				}
				if _, degraded := b.Failures(); degraded {
					t.Error("still degraded")
				}
			})
		})
	}
}

// A model whose document is broken keeps its earlier content, the others change, and all are read
// again until it is mended; a new model that is broken is left out.
func TestOneBrokenModelHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		r, _ := follow(t, c, io.Discard)
		synctest.Wait()
		c.set(func() {
			c.docs["org/both"] = "sie_id: org/both\nnonsense: 1\n"
			c.docs["org/bad"] = doc("org/other", "", "bert_flash")
			c.docs["org/new"] = doc("org/new", "", "bert_flash")
			c.epoch++
		})
		time.Sleep(31 * time.Second)
		synctest.Wait()
		want := []string{"org/both", "org/both:other", "org/fast", "org/new"}
		if v, _ := r.Version(); !slices.Equal(ids(r), want) || !v.Partial {
			t.Errorf("%v %+v, want %v", ids(r), v, want)
		}
		c.set(func() { c.docs["org/both"] = doc("org/both", "", "bert_flash"); delete(c.docs, "org/bad") })
		time.Sleep(2 * time.Minute) // without a new epoch
		synctest.Wait()
		want = []string{"org/both", "org/fast", "org/new"}
		if v, _ := r.Version(); !slices.Equal(ids(r), want) || v.Partial {
			t.Errorf("%v %+v, want %v", ids(r), v, want)
		}
	})
}

// The URL of sie-config is checked at once.
func TestBootstrapChecksItsURL(t *testing.T) {
	for _, bad := range []string{"", "config:80", "ftp://x", "http://", "http://a?b", "http://u:p@a"} {
		_, err := models.NewBootstrap(models.BootstrapOptions{URL: bad}, nil)
		if err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Work and workers are told which document of a model is meant where sie-config says so, also after
// a change that the config hash leaves out; a document that cannot be read leaves the one before.
func TestBootstrapKnowsTheDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		r, b := follow(t, c, io.Discard)
		synctest.Wait()
		both := func() (document string, one, two fleet.Hashes) {
			m, err := r.Find("org/both:other")
			if err != nil {
				t.Fatal(err)
			}
			route, err := m.Route("", "")
			if err != nil {
				t.Fatal(err)
			}
			return route.ModelDocumentHash, r.Config().Hashes["default"], r.Config().Hashes["fast"]
		}
		change := func(f func()) {
			c.set(func() { c.epoch++; f() })
			b.Ask()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if doc, one, two := both(); doc != "" || one.Documents != "" || two.Documents != "" ||
			one.Config == "" {
			t.Errorf("sie-config does not say: %q %v %v", doc, one, two)
		}
		change(func() { c.said = map[string]string{"org/both": "b1", "org/fast": "f1"} })
		doc1, one, two := both()
		if doc1 != "b1" || one.Documents != confighash.Documents(map[string]string{"org/both": "b1"}) ||
			two.Documents != confighash.Documents(c.said) {
			t.Errorf("%q %v %v", doc1, one, two)
		}
		change(func() {
			c.docs["org/fast"] = strings.Replace(c.docs["org/fast"], "org/weights", "org/others", 1)
			c.said["org/fast"] = "f2"
		})
		if doc, now, other := both(); doc != "b1" || now != one || other.Config != two.Config ||
			other.Documents == two.Documents || other.Documents == "" {
			t.Errorf("other weights: %q %v %v, before %v %v", doc, now, other, one, two)
		}
		_, _, two = both()
		change(func() { c.docs["org/fast"], c.said["org/fast"], c.json = "{", "f3", nil })
		if _, _, other := both(); other != two {
			t.Errorf("a document that cannot be read: %v, before %v", other, two)
		}
	})
}
