package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/testrig"
)

// /health is what SDKs read to learn the capacity.
func TestHealth(t *testing.T) {
	r := start(t, nil)
	type health struct {
		Status, Type string
		Configured   []string `json:"configured_gpu_types"`
		Live         []string `json:"live_gpu_types"`
		Cluster      struct {
			Workers int     `json:"worker_count"`
			GPUs    int     `json:"gpu_count"`
			Models  int     `json:"models_loaded"`
			QPS     float64 `json:"total_qps"`
		}
		Workers []struct {
			Name, URL, GPU, Bundle string
			Hash                   string `json:"bundle_config_hash"`
			Healthy                bool
			Depth                  int      `json:"queue_depth"`
			Slots                  int      `json:"ready_gpu_slots"`
			Cost                   int64    `json:"pending_cost"`
			Batches                int      `json:"inflight_batches"`
			Memory                 int64    `json:"memory_used_bytes"`
			Total                  int64    `json:"memory_total_bytes"`
			Models                 []string `json:"loaded_models"`
			Live                   bool
			Since                  int64
		}
		Queues   []any
		Activity struct{ Failed map[string]int }
		Server   struct{ Version string }
		Models   []struct {
			Name, State string
			Workers     int      `json:"worker_count"`
			GPUs        []string `json:"gpu_types"`
			Depth       int      `json:"total_queue_depth"`
		}
		Lanes []struct {
			Profile        string `json:"machine_profile"`
			Workers, Ready int
			Configured     bool
			Depth          *int64 `json:"queue_depth"`
		}
	}
	var h health
	r.get("/health", &h)
	if h.Status != "degraded" || h.Type != "gateway" || h.Workers == nil || h.Models == nil ||
		!slices.Equal(h.Configured, []string{"h100", "l4"}) || len(h.Lanes) != 2 {
		t.Errorf("without workers: %+v", h)
	}
	r.worker("w-1", testLanes[0], func(hb *bus.WorkerHeartbeat) {
		hb.LoadedModels, hb.QueueDepth, hb.PendingCost, hb.InflightBatches = []string{"org/a"}, 3, 30, 1
		hb.Pending = map[string]bus.Pending{"org/a": {Items: 3}}
		hb.ReadyGPUSlots, hb.MemoryUsed, hb.MemoryTotal, hb.BundleConfigHash = 1, 5, 9, "abc"
	})
	r.worker("w-2", testLanes[0], func(hb *bus.WorkerHeartbeat) {
		hb.Ready, hb.LoadedModels = false, []string{"org/a", "org/b"}
	})
	other := bus.Lane{Pool: "p", Profile: "cpu", Bundle: "b"}
	r.worker("w-3", other, nil)
	h = health{}
	r.get("/health", &h)
	if h.Status != "healthy" || h.Cluster.Workers != 3 || h.Cluster.GPUs != 3 || h.Cluster.Models != 2 ||
		!slices.Equal(h.Live, []string{"cpu", "l4"}) {
		t.Errorf("%+v", h)
	}
	w := h.Workers[0]
	if w.Name != "w-1" || w.URL != "http://w-1" || w.GPU != "l4" || !w.Healthy || w.Depth != 3 ||
		w.Cost != 30 ||
		w.Batches != 1 || w.Slots != 1 || w.Memory != 5 || w.Total != 9 || w.Hash != "abc" ||
		w.Bundle != "default" || h.Workers[1].Healthy || h.Workers[2].Models == nil {
		t.Errorf("%+v", h.Workers)
	}
	if m := h.Models; len(m) != 2 || m[0].Name != "org/a" || m[0].Workers != 2 || m[0].Depth != 3 ||
		m[0].State != "loaded" || !slices.Equal(m[0].GPUs, []string{"l4"}) {
		t.Errorf("%+v", m)
	}
	if a, w := h.Activity, h.Workers[0]; a.Failed == nil || !w.Live || w.Since == 0 || h.Queues == nil ||
		h.Server.Version == "" || h.Lanes[0].Depth != nil {
		t.Errorf("%+v", h)
	}
	if l := h.Lanes; len(l) != 3 || l[0].Workers != 2 || l[0].Ready != 1 || !l[1].Configured ||
		l[1].Workers != 0 || l[2].Profile != "cpu" || l[2].Configured {
		t.Errorf("%+v", l)
	}
}

// A frame of 500 workers, each with ten models and a whole hash, is complete and below 1 MiB.
func TestAFrameOf500Workers(t *testing.T) {
	r := start(t, nil)
	for i := range 500 {
		r.worker(fmt.Sprintf("sie-worker-l4-default-%d-production", i), testLanes[i%2],
			func(h *bus.WorkerHeartbeat) {
				for m := range 10 {
					h.LoadedModels = append(h.LoadedModels, fmt.Sprintf("organisation/some-model-v1.5-%d", m))
				}
				h.BundleConfigHash, h.MemoryUsed, h.MemoryTotal = strings.Repeat("a", 64), 70<<30, 80<<30
			})
	}
	b, err := r.frame()
	var v struct {
		Workers   []struct{ Name string }
		Truncated bool
	}
	if err := errors.Join(err, json.Unmarshal(b, &v)); err != nil || len(b) >= 1<<20 ||
		len(v.Workers) != 500 || v.Truncated {
		t.Errorf("%v: %d bytes with %d workers, truncated %v", err, len(b), len(v.Workers), v.Truncated)
	}
}

// A worker that says it is not ready takes no more work from that heartbeat on, and is shown so.
func TestNotReadyDemotesAtOnce(t *testing.T) {
	r := start(t, nil)
	healthy := func() bool {
		var h struct{ Workers []struct{ Healthy bool } }
		r.get("/health", &h)
		return len(h.Workers) == 1 && h.Workers[0].Healthy
	}
	for _, ready := range []bool{true, false, true, false} {
		r.worker("w-1", testLanes[0], func(h *bus.WorkerHeartbeat) { h.Ready = ready })
		lane := r.fleet.Snapshot().Lane(testLanes[0])
		if got := lane != nil && len(lane.Ready) == 1; got != ready || healthy() != ready {
			t.Errorf("ready=%v: the lane %v, /health %v", ready, got, healthy())
		}
	}
}

// The pools are those of configured and live lanes, in the form that SDKs read.
func TestPools(t *testing.T) {
	r := start(t, nil)
	r.worker("w-1", testLanes[1], nil)
	type pool struct {
		Name string
		Spec struct {
			GPUs map[string]int
		}
		Status struct {
			State    string
			Assigned []struct{ Name, URL, GPU, Bundle string } `json:"assigned_workers"`
		}
	}
	var all struct{ Pools []pool }
	r.get("/v1/pools", &all)
	if p := all.Pools; len(p) != 2 || p[0].Name != "default" || p[0].Status.State != "pending" ||
		p[0].Status.Assigned == nil || p[1].Name != "team" || p[1].Status.State != "active" ||
		len(p[1].Status.Assigned) != 1 || p[1].Status.Assigned[0].GPU != "h100" || len(p[1].Spec.GPUs) != 1 {
		t.Errorf("%+v", p)
	}
	var one pool
	r.get("/v1/pools/team", &one)
	if one.Name != "team" {
		t.Errorf("%+v", one)
	}
	if a := r.do("GET", "/v1/pools/nope", ""); a.status != 404 ||
		!strings.Contains(a.body, `"detail":{"code":"POOL_NOT_FOUND","message":"Pool 'nope' not found"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What /metrics tells of the workers, the broker and the configuration.
func TestGauges(t *testing.T) {
	r := start(t, nil)
	r.configure(7)
	r.worker("w-1", testLanes[0], func(h *bus.WorkerHeartbeat) {
		h.LoadedModels = []string{"org/a", "org/a:zfast", "org/a:no", "made/up"}
		h.LoadingModels, h.QueueDepth, h.FreeCredit = []string{"org/b"}, 4, 500
		h.Pending = map[string]bus.Pending{"org/a": {Items: 3, Window: 8},
			"org/a:zfast": {Items: 9, Window: 8}, "made/up": {Window: 1}}
		h.SentAtMS = time.Now().Add(-time.Hour).UnixMilli() // its clock is behind
	})
	r.worker("w-2", testLanes[0], func(h *bus.WorkerHeartbeat) { h.Ready = false })
	r.fleet.Heartbeat(bus.HealthPrefix+"w-9", []byte("{"))
	r.worker("w-3", testLanes[0], nil)
	leased := testLanes[0]
	leased.Pool = "of-a-client" // whose name is no label
	r.worker("w-4", leased, func(h *bus.WorkerHeartbeat) {
		h.HomePool, h.Ready, h.QueueDepth = testLanes[0].Pool, false, 6
		h.LoadingModels = []string{"org/c"}
	})
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"sie_gateway_workers", []string{"healthy"}, 2}, {"sie_gateway_workers", []string{"unhealthy"}, 2},
		{"sie_gateway_worker_queue_depth", []string{"w-1", "default", "l4"}, 4},
		{"sie_gateway_model_workers", []string{"org/a"}, 1},
		{"sie_gateway_model_workers", []string{"org/a:zfast"}, 1},
		{"sie_gateway_worker_queue_depth", []string{"w-4", "default", "l4"}, 6},
		{"sie_gateway_model_loads_in_progress", []string{"default", "l4"}, 2},
		{"sie_gateway_lane_workers", []string{"default", "l4"}, 2},
		{"sie_gateway_lane_free_credit_tokens", []string{"default", "l4"}, 500},
		{"sie_gateway_worker_clock_skew_seconds", []string{"w-3"}, 0},
		{"sie_gateway_model_free_slices", []string{"default", "l4", "org/a"}, 5},
		{"sie_gateway_model_free_slices", []string{"default", "l4", "org/a:zfast"}, 0},
		{"sie_gateway_config_epoch", nil, 7},
		{"sie_gateway_heartbeats_refused", nil, 1},
	} {
		if got := testrig.Metric(t, r.opt.Registry, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	skew := testrig.Metric(t, r.opt.Registry, "sie_gateway_worker_clock_skew_seconds", "w-1")
	if skew > -3600 || skew < -3660 {
		t.Errorf("a clock that is an hour behind is at %v s", skew)
	}
	if a := r.do("GET", "/metrics", ""); a.status != 200 || !strings.Contains(a.body,
		"sie_gateway_workers{") || strings.Contains(a.body, "made/up") ||
		strings.Contains(a.body, leased.Pool) ||
		strings.Contains(a.body, "org/a:no") {
		t.Errorf("%d %.200s", a.status, a.body)
	}
}

// The rate is computed at most once a second, over the time that has passed.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rate
		if got := r.now(10); got != 0 {
			t.Errorf("at the start %v", got)
		}
		time.Sleep(500 * time.Millisecond)
		if got := r.now(1000); got != 0 {
			t.Errorf("after half a second %v", got)
		}
		time.Sleep(1500 * time.Millisecond)
		if got := r.now(30); got != 10 {
			t.Errorf("20 in two seconds: %v", got)
		}
	})
}
