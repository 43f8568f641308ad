package server

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/bus"
)

// The read side of the configuration: lists, documents and what cannot be found.
func TestConfigs(t *testing.T) {
	r := start(t, nil)
	r.configure(7)
	r.worker("w-1", testLanes[1], nil)
	var listed struct {
		Models []struct {
			ID       string `json:"model_id"`
			Profiles []string
			Source   string
		}
	}
	r.get("/v1/configs/models", &listed)
	if m := listed.Models; len(m) != 3 || m[0].ID != "org/a" ||
		!slices.Equal(m[0].Profiles, []string{"default", "zfast"}) || m[0].Source != "gateway-registry" {
		t.Errorf("%+v", m)
	}
	var bundles struct {
		Bundles []struct {
			ID                 string `json:"bundle_id"`
			Priority, Adapters int
			Engine, Source     string
			Count              int `json:"adapter_count"`
			Workers            int `json:"connected_workers"`
		}
	}
	r.get("/v1/configs/bundles", &bundles)
	if b := bundles.Bundles; len(b) != 2 || b[0].ID != "default" || b[0].Priority != 10 ||
		b[0].Engine != "pytorch" || b[1].ID != "fast" || b[1].Engine != "candle" || b[1].Count != 1 ||
		b[1].Workers != 1 || b[0].Workers != 0 {
		t.Errorf("%+v", b)
	}
	for path, want := range map[string]map[string]any{
		"models/org/a": {"sie_id": "org/a", "source": "gateway-registry", "bundles": []any{"default", "fast"},
			"profiles": []any{"default", "zfast"}},
		"models/org%2Fb": {"sie_id": "org/b", "source": "gateway-registry", "bundles": []any{"fast"},
			"profiles": []any{"default"}},
		"models/org/a:zfast": {"sie_id": "org/a", "source": "gateway-registry",
			"bundles": []any{"default", "fast"}, "profiles": []any{"default", "zfast"}},
		"bundles/fast": {"name": "fast", "priority": 20, "engine": "candle", "source": "gateway-registry",
			"adapters": []any{"sie_server.adapters.bert_flash"}},
	} {
		a := r.do("GET", "/v1/configs/"+path, "")
		var got map[string]any
		if err := yaml.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 ||
			a.header.Get("Content-Type") != "application/x-yaml" || len(got) != len(want) {
			t.Errorf("%s: %d %v %s", path, a.status, err, a.body)
			continue
		}
		for k, v := range want {
			l, isList := v.([]any)
			g, _ := got[k].([]any)
			if isList && !slices.Equal(l, g) || !isList && got[k] != v {
				t.Errorf("%s: %s is %v, want %v", path, k, got[k], v)
			}
		}
	}
	for path, text := range map[string]string{
		"models/nope": "Model 'nope' not found", "models/nope/status": "Model 'nope/status' not found",
		"bundles/nope": "Bundle 'nope' not found",
	} {
		if a := r.do("GET", "/v1/configs/"+path, ""); a.status != 404 || !strings.Contains(a.body, text) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A model is acknowledged when every live worker of each of its bundles has the expected hash, and
// each bundle has one.
func TestConfigStatus(t *testing.T) {
	r := start(t, nil)
	r.configure(7)
	var s struct {
		Epoch   uint64 `json:"config_epoch"`
		All     bool   `json:"all_bundles_acked"`
		None    bool   `json:"no_bundles"`
		Bundles []struct {
			ID       string   `json:"bundle_id"`
			Expected string   `json:"expected_bundle_config_hash"`
			Eligible int      `json:"total_eligible_workers"`
			Acked    []string `json:"acked_workers"`
			Pending  []string `json:"pending_workers"`
			Done     bool     `json:"acked"`
		}
	}
	const path = "/v1/configs/models/org/b/status"
	r.get(path, &s)
	if s.Epoch != 7 || s.All || s.None || len(s.Bundles) != 1 || s.Bundles[0].ID != "fast" ||
		s.Bundles[0].Expected == "" || s.Bundles[0].Eligible != 0 || s.Bundles[0].Done {
		t.Errorf("without workers: %+v", s)
	}
	hash := s.Bundles[0].Expected
	r.worker("w-1", testLanes[1], func(h *bus.WorkerHeartbeat) { h.BundleConfigHash = hash })
	r.worker("w-2", testLanes[1], func(h *bus.WorkerHeartbeat) { h.BundleConfigHash = "old" })
	r.worker("w-3", testLanes[0], nil) // of another bundle
	r.get(path, &s)
	if b := s.Bundles[0]; s.All || b.Eligible != 2 || !slices.Equal(b.Acked, []string{"w-1"}) ||
		!slices.Equal(b.Pending, []string{"w-2"}) || b.Done {
		t.Errorf("%+v", s)
	}
	r.worker("w-2", testLanes[1], func(h *bus.WorkerHeartbeat) { h.BundleConfigHash = hash })
	r.get(path, &s)
	if !s.All || !s.Bundles[0].Done {
		t.Errorf("%+v", s)
	}
	// A change that the config hash leaves out: the worker that has it, the one that has it not,
	// and one of a release that does not tell.
	r.said = "a"
	r.configure(8)
	of := func(w, documents string) {
		r.worker(w, testLanes[1], func(h *bus.WorkerHeartbeat) {
			h.BundleConfigHash, h.BundleDocumentsHash = hash, documents
		})
	}
	has := r.models.Config().Hashes["fast"].Documents
	of("w-1", has)
	of("w-2", "before")
	r.get(path, &s)
	if b := s.Bundles[0]; has == "" || b.Expected != hash || s.All || b.Done ||
		!slices.Equal(b.Acked, []string{"w-1"}) || !slices.Equal(b.Pending, []string{"w-2"}) {
		t.Errorf("documents %q: %+v", has, s)
	}
	for _, documents := range []string{has, ""} {
		of("w-2", documents)
		if r.get(path, &s); !s.All || !s.Bundles[0].Done {
			t.Errorf("documents %q: %+v", documents, s)
		}
	}
	r.get("/v1/configs/models/org/c/status", &s)
	if s.All || !s.None || len(s.Bundles) != 0 {
		t.Errorf("a model in no bundle: %+v", s)
	}
}

// A bundle of which the cluster has no lane has no worker that could acknowledge.
func TestConfigStatusOfTheLanes(t *testing.T) {
	for _, c := range []struct {
		lanes   []bus.Lane
		workers int // of the first of testLanes, the bundle "default"
		want    bool
	}{
		{testLanes[:1], 1, true}, {testLanes[:1], 0, false}, {testLanes, 1, false}, {nil, 1, false},
		{[]bus.Lane{{Pool: "p", Profile: "cpu", Bundle: "else"}}, 0, false},
	} {
		r := start(t, func(o *Options) {
			known := o.Config
			o.Config = func() *models.Config {
				x := *known()
				x.Lanes = c.lanes
				return &x
			}
		})
		r.configure(7)
		var config struct {
			All     bool `json:"all_bundles_acked"`
			Bundles []struct {
				ID       string `json:"bundle_id"`
				Expected string `json:"expected_bundle_config_hash"`
			}
		}
		const path = "/v1/configs/models/org/a/status"
		r.get(path, &config)
		if len(config.Bundles) != 2 || config.Bundles[0].ID != testLanes[0].Bundle {
			t.Fatalf("%+v", config)
		}
		for range c.workers {
			r.worker("w", testLanes[0], func(h *bus.WorkerHeartbeat) {
				h.BundleConfigHash = config.Bundles[0].Expected
			})
		}
		if r.get(path, &config); config.All != c.want {
			t.Errorf("lanes %v, %d workers: %v", c.lanes, c.workers, config.All)
		}
	}
}

// Without an expected hash nobody has acknowledged, also not a worker without one.
func TestConfigStatusWithoutAHash(t *testing.T) {
	r := start(t, func(o *Options) {
		known := o.Config
		o.Config = func() *models.Config {
			c := *known()
			c.Hashes = nil
			return &c
		}
	})
	r.configure(7)
	r.worker("w-1", testLanes[1], nil)
	a := r.do("GET", "/v1/configs/models/org/b/status", "")
	if a.status != 200 || !strings.Contains(a.body,
		`"acked_workers":[],"pending_workers":["w-1"],"acked":false`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestResolve(t *testing.T) {
	r := start(t, nil)
	r.configure(7)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"model":"org/a"}`, 200,
			`{"compatible_bundles":["default","fast"],"model":"org/a","profiles":["default","zfast"],"resolved_bundle":"default"}`},
		{`{"model":"org/a","bundle":"fast"}`, 200, `"resolved_bundle":"fast"`},
		{`{"model":"FAST:/org/a","bundle":"default"}`, 200, `"resolved_bundle":"fast"`},
		{`{"model":"org/b","bundle":"default"}`, 409, "compatible bundles: fast"},
		{`{"model":"org/c"}`, 404, "No bundle can serve"}, {`{"model":"nope"}`, 404, "'nope' not found"},
		{`{}`, 400, "the body must be JSON"}, {`{"model":1}`, 400, "the body must be JSON"},
		{`[`, 400, "the body must be JSON"},
		{`{"model":"` + strings.Repeat("x", maxResolve) + `"}`, 413, "65536 bytes"},
	} {
		if a := r.do("POST", "/v1/configs/resolve", c.body); a.status != c.status ||
			!strings.Contains(a.body, c.want) {
			t.Errorf("%.60s: %d %s, want %d %s", c.body, a.status, a.body, c.status, c.want)
		}
	}
}

// A gateway that was just started does not know which models and pools there are, and says so: it
// is not that there are none.
func TestWhatIsNotKnownIsNotMissing(t *testing.T) {
	r := start(t, func(o *Options) {
		o.Pools = pools.New(pools.Options{Fleet: o.Fleet, Log: o.Log})
	})
	for _, x := range []struct{ method, path, body string }{
		{"GET", "/v1/configs/models", ""}, {"GET", "/v1/configs/models/org/a", ""},
		{"GET", "/v1/configs/models/org/a/status", ""}, {"GET", "/v1/configs/bundles", ""},
		{"GET", "/v1/configs/bundles/default", ""}, {"POST", "/v1/configs/resolve", `{"model":"org/a"}`},
		{"GET", "/v1/pools", ""}, {"GET", "/v1/pools/mine", ""},
	} {
		if a := r.do(x.method, x.path, x.body); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", x.method, x.path, a.status, a.body)
		}
	}
	if a := r.do("GET", "/v1/pools/default", ""); a.status != 200 {
		t.Errorf("the operator's pool: %d %s", a.status, a.body)
	}
}
