package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fasthttp/websocket"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// discoverable serves a gateway of two models, one with two profiles, and a name that stands for
// one. beat publishes a heartbeat of a worker.
func discoverable(t *testing.T) (s *serving, beat func(id string, change func(*bus.WorkerHeartbeat))) {
	t.Helper()
	models, bundles := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(models, "a.yaml"): "sie_id: org/a\nhf_id: org/weights\nhf_revision: " +
			strings.Repeat("a", 40) + "\ninputs: {text: true}\nmax_sequence_length: 512\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n" +
			"  default: {adapter_path: 'sie_server.adapters.bert_flash:A', max_batch_tokens: 8}\n" +
			"  small: {extends: default, max_batch_tokens: 4}\n",
		filepath.Join(models, "b.yaml"): "sie_id: org/b\nhf_id: org/weights\ninputs: {text: true}\n" +
			"tasks: {encode: {dense: {dim: 4}}}\nprofiles:\n" +
			"  default: {adapter_path: 'sie_server.adapters.nomic_flash:A', max_batch_tokens: 8}\n",
		filepath.Join(bundles, "d.yaml"): "name: default\npriority: 1\nadapters: [sie_server.adapters.bert_flash]\n",
		filepath.Join(bundles, "e.yaml"): "name: extra\npriority: 2\nadapters: " +
			"[sie_server.adapters.bert_flash, sie_server.adapters.nomic_flash]\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broker := bustest.Start(t, nil)
	t.Setenv("SIE_GATEWAY_MODEL_ALIASES", `{"best":[{"model":"org/a","weight":1}]}`)
	s = serve(t, "--drain-delay 0s --nats-url "+broker.URL+" --models-dir "+models+" --bundles-dir "+bundles)
	conn := broker.Connect(bus.SidecarInboxes)
	return s, func(id string, change func(*bus.WorkerHeartbeat)) {
		h := bus.WorkerHeartbeat{Name: id, Ready: true, MachineProfile: "l4", PoolName: "default",
			Bundle: "default", GPUCount: 1, LoadedModels: []string{}, LoadingModels: []string{}}
		change(&h)
		data, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Publish(bus.HealthPrefix+id, data); err != nil {
			t.Fatal(err)
		}
	}
}

// listed returns the entry of a model in /v1/models. says is its state and the workers that have
// it.
func listed(id, says string) map[string]any {
	words := strings.Fields(says)
	workers := []any{}
	for _, w := range words[1:] {
		workers = append(workers, w)
	}
	profile := func(isDefault bool) any {
		return map[string]any{"is_default": isDefault, "identity": nil, "remote_contract_sha256": nil,
			"remote_execution_sha256": nil, "runtime_instance_id": nil}
	}
	out := map[string]any{
		"name": id, "inputs": []any{"text"}, "outputs": []any{"dense"}, "dims": map[string]any{"dense": 8.0},
		"loaded": words[0] == "loaded", "state": words[0], "last_error": nil, "max_sequence_length": 512.0,
		"revision": strings.Repeat("a", 40), "capabilities": nil,
		"routing":  map[string]any{"policy": nil, "upstream_kind": nil},
		"profiles": map[string]any{"default": profile(true), "small": profile(false)},
		"bundles":  []any{"default", "extra"}, "worker_count": float64(len(workers)), "workers": workers,
	}
	switch id {
	case "org/a":
		out["aliases"] = []any{"best"}
	case "org/a:small":
		out["profiles"] = map[string]any{"default": profile(true)} // an id of its own has one
	case "org/b":
		out["dims"], out["revision"] = map[string]any{"dense": 4.0}, nil
		out["max_sequence_length"], out["bundles"] = nil, []any{"extra"}
		out["profiles"] = map[string]any{"default": profile(true)}
	}
	return out
}

// GET /v1/models has each field of each id, and follows what the workers say.
func TestModelsOfACluster(t *testing.T) {
	s, beat := discoverable(t)
	beat("w-1", func(*bus.WorkerHeartbeat) {})
	s.untilReady()
	var body string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(body)
		}
	})
	check := func(what, a, small, b string) {
		t.Helper()
		want := map[string]any{"models": []any{listed("org/a", a), listed("org/a:small", small),
			listed("org/b", b), listed("best", a)}}
		testrig.Until(t, what, func() bool {
			var got any
			_, body = s.get("/v1/models")
			return json.Unmarshal([]byte(body), &got) == nil && reflect.DeepEqual(got, want)
		})
	}
	check("nothing is loaded", "available", "available", "available")
	beat("w-1", func(h *bus.WorkerHeartbeat) { h.LoadingModels = []string{"org/a"} })
	check("one is loading", "loading", "available", "available")
	both := []string{"org/a", "org/a:small"}
	beat("w-1", func(h *bus.WorkerHeartbeat) { h.LoadedModels = both[:1] })
	beat("w-2", func(h *bus.WorkerHeartbeat) { h.LoadedModels = both })
	check("two workers have it loaded", "loaded w-1 w-2", "loaded w-2", "available")
	beat("w-2", func(h *bus.WorkerHeartbeat) { h.Ready, h.LoadedModels = false, both })
	check("one of them is not ready", "loaded w-1", "available", "available")
	beat("w-2", func(h *bus.WorkerHeartbeat) { h.Terminated = true })
	beat("w-1", func(h *bus.WorkerHeartbeat) { h.FailedModels = []string{"org/a", "org/b"} })
	check("all that could run it failed", "failed", "available", "available")
	beat("w-1", func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = []string{"org/a"} })
	check("none can ever run it, or a profile of it", "failed", "failed", "available")
	for id, want := range map[string]int{"org/b": 200, "ORG/A:small": 200, "best": 200, "org/none": 404} {
		if status, one := s.get("/v1/models/" + id); status != want {
			t.Errorf("%s: %d %s", id, status, one)
		}
	}
}

// A worker that says that it is not ready is shown so by the next frame, by /health and by the list
// of models, whatever it had loaded: nobody waits for its silence.
func TestNotReadyIsShownWithTheNextFrame(t *testing.T) {
	s, beat := discoverable(t)
	loaded := func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"org/a"} }
	beat("w-1", loaded)
	s.untilReady()
	socket := "ws" + strings.TrimPrefix(s.url, "http") + "/ws/cluster-status"
	c, _, err := websocket.DefaultDialer.Dial(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type view struct {
		Type    string
		Workers []struct {
			Name          string
			Healthy, Live bool
			Since         int64
		}
		Lanes []struct{ Workers, Ready int }
	}
	until := func(healthy bool) {
		t.Helper()
		for {
			var v view
			if err := c.ReadJSON(&v); err != nil {
				t.Fatal(err)
			}
			if len(v.Workers) == 1 && v.Workers[0].Healthy == healthy {
				w := v.Workers[0]
				if !w.Live || w.Since == 0 || len(v.Lanes) != 1 || v.Lanes[0].Workers != 1 ||
					(v.Lanes[0].Ready == 1) != healthy {
					t.Errorf("%+v", v)
				}
				return
			}
		}
	}
	until(true)
	beat("w-1", func(h *bus.WorkerHeartbeat) { loaded(h); h.Ready = false })
	until(false)
	var v view
	_, body := s.get("/health")
	err = json.Unmarshal([]byte(body), &v)
	if err != nil || v.Type != "gateway" || len(v.Workers) != 1 || v.Workers[0].Healthy {
		t.Errorf("%v %s", err, body)
	}
	if _, body := s.get("/v1/models/org/a"); !strings.Contains(body, `"loaded":false`) {
		t.Errorf("%s", body)
	}
	beat("w-1", loaded)
	until(true)
}
