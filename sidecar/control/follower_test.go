package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/configpoll"
)

// fakeConfig is a sie-config without a network: its answers, and what it was asked.
type fakeConfig struct {
	mu     sync.Mutex
	epoch  uint64
	docs   map[string]string // by id
	away   bool
	status int
	asked  []string
	token  string
	strip  bool // the reference's answers, without what is ours
}

func (c *fakeConfig) RoundTrip(q *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q.URL.Path)
	c.token = q.Header.Get("Authorization")
	if c.away {
		return nil, errors.New("connection refused")
	}
	var v any
	switch q.URL.Path {
	case "/v1/configs/epoch":
		text, _ := json.Marshal(c.docs)
		v = map[string]any{"epoch": c.epoch, "bundles_hash": "b", "bundle_config_hashes_hash": "c",
			"models_hash": string(text)}
		if c.strip { // its hash is of a part of the documents
			v = map[string]any{"epoch": c.epoch, "bundles_hash": "b",
				"bundle_config_hashes_hash": string(text)}
		}
	case "/v1/configs/export":
		list := []any{}
		for _, id := range slices.Sorted(maps.Keys(c.docs)) {
			x := map[string]any{"model_id": id, "raw_yaml": c.docs[id],
				"affected_bundles":    []string{"default"},
				"model_document_hash": "all of " + c.docs[id],
				"model_config_hashes": map[string]string{"default": "hash of " + c.docs[id]}}
			if c.strip {
				delete(x, "model_config_hashes")
				delete(x, "model_document_hash")
				x["raw_yaml"], x["model_config"] = nil, map[string]string{"sie_id": id}
			}
			list = append(list, x)
		}
		list = append(list, map[string]any{"model_id": "org/else", "raw_yaml": "x",
			"affected_bundles": []string{"other"}})
		v = map[string]any{"snapshot_version": 1, "epoch": c.epoch, "models": list,
			"bundle_config_hashes": map[string]string{"default": "all"},
			"bundle_adapters":      map[string][]string{"default": {"a"}, "other": {"b"}}}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	status := 200
	if c.status != 0 {
		status = c.status
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(string(b))),
		Header: http.Header{}, Request: q}, nil
}

func (c *fakeConfig) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *fakeConfig) take() (asked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, c.asked = c.asked, nil
	return asked
}

// follow starts a Follower of c in a bubble. last returns what it read last.
func follow(t *testing.T, c *fakeConfig, bundle string) (f *Follower, last func() *Export) {
	t.Helper()
	var mu sync.Mutex
	var have *Export
	f, err := New(Options{URL: "http://config:8080/", Token: "secret", Bundle: bundle,
		Trusted: []string{"sie-config"}, Log: slog.New(slog.DiscardHandler),
		Client: &http.Client{Transport: c},
		Read: func(e *Export, asked time.Time) {
			mu.Lock()
			defer mu.Unlock()
			if have != nil && e.Gated() && e.Epoch == have.Epoch && e != have &&
				slices.Equal(e.Models, have.Models) {
				t.Error("the same content is another Export")
			}
			have = e
		}})
	if err != nil {
		t.Fatal(err)
	}
	f.Register(prometheus.NewRegistry())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return f, func() *Export {
		mu.Lock()
		defer mu.Unlock()
		return have
	}
}

func told(producer string) *nats.Msg {
	return &nats.Msg{Data: []byte(`{"router_id":"` + producer + `","epoch":99,"model_config":"nonsense"}`)}
}

// pass lets time pass, and what it leads to.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A sidecar has the models of its bundle; a delta of a trusted producer makes it ask at once, many
// make it ask few times, and what they say is not believed.
func TestDeltasSayWhenToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeConfig{epoch: 3, docs: map[string]string{"org/a": "A", "org/b": "B"}}
		f, last := follow(t, c, "default")
		synctest.Wait()
		e := last()
		if e == nil || e.Epoch != 3 || e.Hash != "all" || len(e.Models) != 2 ||
			e.Models[0] != (Model{"org/a", "A"}) ||
			!e.Gated() || e.ModelHash("org/a") != "hash of A" || e.ModelHash("org/a:fast") != "hash of A" ||
			e.DocumentHash("org/a") != "all of A" || e.DocumentHash("org/b:fast") != "all of B" ||
			e.DocumentHash("org/else") != "" || len(e.Documents) != 2 ||
			e.ModelHash("org/else") != "" || e.ModelHash("org/none") != "" || c.token != "Bearer secret" {
			t.Fatalf("%+v", e)
		}
		c.take()
		for _, m := range []*nats.Msg{
			told("evil"), told("sie-configs"),
			{Data: []byte(`{"producer_id":"evil","router_id":"sie-config"}`)},
			{Data: []byte("{}")}, {Data: []byte("x")}, {},
			{Data: told("sie-config").Data, Reply: "_INBOX.1"},
			{Data: told("sie-config").Data, Header: nats.Header{"Nats-Sequence": {"1"}}},
			{Data: []byte(`{"router_id":"sie-config","x":"` + strings.Repeat("x", 1<<20) + `"}`)},
		} {
			f.hear(m)
		}
		pass(time.Second)
		if got := c.take(); len(got) != 0 {
			t.Errorf("forged deltas: %v", got)
		}
		if f.deltas.Told.Load() != 0 || f.deltas.Untrusted.Load() != 4 || f.deltas.Unreadable.Load() != 5 {
			t.Errorf("%d told, %d untrusted, %d unreadable", f.deltas.Told.Load(), f.deltas.Untrusted.Load(),
				f.deltas.Unreadable.Load())
		}
		c.set(func() { c.epoch = 4; c.docs["org/new"] = "N"; delete(c.docs, "org/b") })
		for range 1000 {
			f.hear(told("sie-config-1"))
		}
		pass(time.Second)
		if e := last(); e.Epoch != 4 || e.ModelHash("org/new") != "hash of N" || e.ModelHash("org/b") != "" {
			t.Errorf("%+v", e)
		}
		if got := c.take(); len(got) > 4 {
			t.Errorf("%d questions: %v", len(got), got)
		}
		f.hear(told("sie-config"))
		pass(time.Second)
		if got := c.take(); !slices.Equal(got, []string{"/v1/configs/epoch"}) {
			t.Errorf("a delta without a change: %v", got)
		}
		for range 50 {
			f.hear(told("sie-config"))
			pass(configpoll.Nearest / 10)
		}
		pass(time.Second)
		if got := c.take(); len(got) > 6 {
			t.Errorf("%d questions for deltas in the time of 5", len(got))
		}
	})
}

// Deltas are lost, doubled, late and forged, sie-config is away for a while, and its epoch goes
// back: 35 s after the last change, or after it is back, a worker has what sie-config has.
func TestConverges(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			c := &fakeConfig{epoch: 1, docs: map[string]string{}, strip: seed%4 == 0}
			f, last := follow(t, c, "default")
			for range 60 {
				switch n := r.IntN(10); {
				case n < 4:
					c.set(func() {
						c.epoch++
						c.docs["org/"+string(rune('a'+r.IntN(5)))] = string(rune('A' + r.IntN(26)))
					})
				case n < 5:
					c.set(func() { c.epoch++; delete(c.docs, "org/"+string(rune('a'+r.IntN(5)))) })
				case n < 6:
					c.set(func() { c.epoch = uint64(r.IntN(int(c.epoch) + 1)) })
				case n < 7:
					c.set(func() { c.away = r.IntN(2) == 0 })
				default:
					f.hear(told([]string{"sie-config", "evil"}[r.IntN(2)]))
				}
				pass(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
			c.set(func() { c.away = false })
			pass(35 * time.Second)
			e := last()
			if e == nil || e.Epoch != c.epoch || len(e.Models) != len(c.docs) ||
				e.Gated() == (c.strip || len(c.docs) == 0) {
				t.Fatalf("seed %d: %+v; sie-config has epoch %d and %v", seed, e, c.epoch, c.docs)
			}
			for _, m := range e.Models {
				if !c.strip && m.YAML != c.docs[m.ID] || c.strip && !strings.Contains(m.YAML, m.ID) {
					t.Errorf("seed %d: %+v", seed, m)
				}
			}
		})
	}
}

// A sie-config that does not answer, or has another cluster's bundles, takes nothing away, and the
// worker says so.
func TestWhatIsKnownStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeConfig{epoch: 3, docs: map[string]string{"org/a": "A"}}
		f, last := follow(t, c, "default")
		synctest.Wait()
		before := last()
		c.set(func() { c.status, c.epoch = 503, 9 })
		pass(time.Minute)
		if last() != before || !f.failing.Load() || f.failures.Load() < 3 {
			t.Errorf("%+v, %d failures", last(), f.failures.Load())
		}
		c.set(func() { c.status = 0 })
		pass(35 * time.Second)
		if last() == before || f.failing.Load() {
			t.Error("sie-config is back")
		}
		other, none := follow(t, c, "else")
		pass(time.Second)
		if none() != nil || !other.failing.Load() {
			t.Errorf("of a bundle that is not there: %+v", none())
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, u := range []string{
		"", "config:8080", "ftp://config", "http://", "http://u:p@config", "http://c/?x=1", "http://[::",
	} {
		_, err := New(Options{URL: u})
		if err == nil || !strings.Contains(err.Error(), "SIE_CONFIG_SERVICE_URL") ||
			strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", u, err)
		}
	}
}
