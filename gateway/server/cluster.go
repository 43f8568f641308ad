package server

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/httpd"
)

// clusterView is what /health and the status sockets show of the cluster. Counts are of live
// workers; Workers lists all that are known, within maxFrame.
type clusterView struct {
	Status     string         `json:"status,omitempty"` // healthy, or degraded without live workers
	Type       string         `json:"type,omitempty"`   // gateway: SDKs look for it
	Timestamp  float64        `json:"timestamp"`
	Ready      bool           `json:"ready"`
	Configured []string       `json:"configured_gpu_types,omitempty"`
	Live       []string       `json:"live_gpu_types,omitempty"`
	Cluster    clusterSummary `json:"cluster"`
	Workers    []workerView   `json:"workers"`
	Models     []modelView    `json:"models"`
	Lanes      []laneView     `json:"lanes"`
	Queues     []queueView    `json:"queues"` // of this gateway
	Activity   activityView   `json:"activity"`
	Server     serverView     `json:"server"`
	Truncated  bool           `json:"truncated,omitempty"` // workers and models were left out
}

// serverView is the gateway itself.
type serverView struct {
	Version string `json:"version"`
	Uptime  int64  `json:"uptime_seconds"`
	Epoch   uint64 `json:"config_epoch"` // of the configuration
}

type clusterSummary struct {
	WorkerCount  int     `json:"worker_count"`
	GPUCount     int     `json:"gpu_count"`
	ModelsLoaded int     `json:"models_loaded"`
	TotalQPS     float64 `json:"total_qps"`
}

// workerView is one worker, with the names that SDKs read.
type workerView struct {
	Name             string   `json:"name"`
	URL              string   `json:"url"`
	GPU              string   `json:"gpu"` // its machine profile
	GPUCount         int      `json:"gpu_count"`
	ReadyGPUSlots    int      `json:"ready_gpu_slots"`
	LoadedModels     []string `json:"loaded_models"`
	LoadingModels    []string `json:"loading_models"`
	QueueDepth       int      `json:"queue_depth"`
	PendingCost      int64    `json:"pending_cost"`
	FreeCredit       int64    `json:"free_credit"`
	InflightBatches  int      `json:"inflight_batches"`
	MemoryUsedBytes  int64    `json:"memory_used_bytes"`
	MemoryTotalBytes int64    `json:"memory_total_bytes"`
	FailedModels     []string `json:"failed_models,omitempty"`
	Healthy          bool     `json:"healthy"`
	Live             bool     `json:"live"`  // its heartbeat is fresh
	Since            int64    `json:"since"` // when it became what it is, in seconds since 1970
	Saturated        bool     `json:"saturated"`
	Pool             string   `json:"pool"`
	Bundle           string   `json:"bundle"`
	BundleConfigHash string   `json:"bundle_config_hash"`
}

// modelView is one model that a live worker has loaded.
type modelView struct {
	Name            string   `json:"name"`
	State           string   `json:"state"`
	WorkerCount     int      `json:"worker_count"`
	GPUTypes        []string `json:"gpu_types"`
	TotalQueueDepth int      `json:"total_queue_depth"`
}

// laneView is one lane that is configured, or has live workers.
type laneView struct {
	Pool       string `json:"pool"`
	Profile    string `json:"machine_profile"`
	Bundle     string `json:"bundle"`
	Configured bool   `json:"configured"`
	Workers    int    `json:"workers"`
	Ready      int    `json:"ready"`
	Items      int    `json:"items"` // that its workers have pulled and not answered
	FreeCredit int64  `json:"free_credit"`
	// Wanted is how many workers it should have so that what waits can begin; 0: nothing waits
	// for one.
	Wanted int `json:"wanted_workers"`
	// Depth is how many slices of all gateways its queue holds; nil: not known.
	Depth *int64 `json:"queue_depth"`
}

// health answers GET /health, always with 200.
func (s *Server) health(r *httpd.Request, _ string) {
	v := s.view()
	v.Status, v.Type = "healthy", "gateway"
	if v.Cluster.WorkerCount == 0 {
		v.Status = "degraded"
	}
	r.SetContentType("application/json")
	r.SetBody(encode(v))
}

// frame makes one frame of the status sockets.
func (s *Server) frame() ([]byte, error) {
	v := s.view()
	b := encode(v)
	for len(b) > maxFrame { // halves the lists: a client takes no more than 1 MiB
		v.Workers, v.Models = v.Workers[:len(v.Workers)/2], v.Models[:len(v.Models)/2]
		v.Lanes, v.Queues, v.Truncated = v.Lanes[:len(v.Lanes)/2], v.Queues[:len(v.Queues)/2], true
		v.Configured, v.Live = v.Configured[:len(v.Configured)/2], v.Live[:len(v.Live)/2]
		b = encode(v)
	}
	return b, nil
}

// maxFrame bounds a frame of the status sockets: the SDK's library takes at most 1 MiB.
const maxFrame = 1<<20 - 1<<10

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("server: a plain struct does not encode: " + err.Error())
	}
	return b
}

// view returns what is known of the cluster now.
func (s *Server) view() *clusterView {
	f := s.opt.Fleet()
	v := &clusterView{
		Timestamp: float64(time.Now().UnixMicro()) / 1e6, Ready: s.waits() == "" && !s.leaving(),
		Configured: []string{}, Live: []string{}, Workers: make([]workerView, 0, len(f.Workers)),
		Models: []modelView{}, Queues: s.queues(), Activity: s.activity.now(),
		Server: serverView{Version: build.Version, Uptime: int64(time.Since(s.started).Seconds())},
	}
	if c := s.opt.Config(); c != nil {
		v.Server.Epoch = c.Version.Epoch
	}
	for _, l := range s.opt.Lanes {
		v.Configured = append(v.Configured, l.Profile)
	}
	models := map[string]*modelView{}
	for _, w := range f.Workers {
		v.Workers = append(v.Workers, viewOf(w))
		if !w.Live {
			continue
		}
		v.Cluster.WorkerCount++
		v.Cluster.GPUCount += w.Heartbeat.GPUCount
		v.Live = append(v.Live, w.Lane.Profile)
		for _, id := range w.Heartbeat.LoadedModels {
			m := models[id]
			if m == nil {
				m = &modelView{Name: id, State: "loaded"}
				models[id] = m
			}
			m.WorkerCount++
			m.TotalQueueDepth += w.Pending(id).Items
			m.GPUTypes = append(m.GPUTypes, w.Lane.Profile)
		}
	}
	for _, m := range models {
		m.GPUTypes = unique(m.GPUTypes)
		v.Models = append(v.Models, *m)
	}
	slices.SortFunc(v.Models, func(a, b modelView) int { return strings.Compare(a.Name, b.Name) })
	v.Configured, v.Live = unique(v.Configured), unique(v.Live)
	v.Cluster.ModelsLoaded, v.Cluster.TotalQPS = len(models), s.rate.now(v.Activity.Answered)
	v.Lanes = s.lanes(f)
	return v
}

// lanes returns the lanes that are configured or have live workers.
func (s *Server) lanes(f *fleet.Snapshot) []laneView {
	var wanted map[bus.Lane]int
	var depths map[bus.Lane]int64
	if s.opt.Wanted != nil {
		wanted = s.opt.Wanted()
	}
	if s.opt.Depths != nil {
		depths = s.opt.Depths()
	}
	out := make([]laneView, 0, len(s.opt.Lanes)+len(f.Lanes))
	add := func(id bus.Lane, configured bool) {
		v := laneView{Pool: id.Pool, Profile: id.Profile, Bundle: id.Bundle, Configured: configured,
			Wanted: wanted[id]}
		if depth, known := depths[id]; known {
			v.Depth = &depth
		}
		v.fill(f.Lane(id))
		out = append(out, v)
	}
	for _, id := range s.opt.Lanes {
		add(id, true)
	}
	for _, l := range f.Lanes {
		if !slices.Contains(s.opt.Lanes, l.ID) {
			add(l.ID, false)
		}
	}
	return out
}

func (v *laneView) fill(l *fleet.Lane) {
	if l != nil {
		v.Workers, v.Ready, v.Items, v.FreeCredit = len(l.Workers), len(l.Ready), l.Items, l.FreeCredit
	}
}

func viewOf(w *fleet.Worker) workerView {
	h := &w.Heartbeat
	return workerView{
		Name: w.ID, URL: "http://" + w.ID, GPU: w.Lane.Profile, GPUCount: h.GPUCount,
		ReadyGPUSlots: h.ReadyGPUSlots, LoadedModels: list(h.LoadedModels),
		LoadingModels: list(h.LoadingModels), QueueDepth: h.QueueDepth, PendingCost: h.PendingCost,
		FreeCredit: h.FreeCredit, InflightBatches: h.InflightBatches, MemoryUsedBytes: h.MemoryUsed,
		MemoryTotalBytes: h.MemoryTotal, FailedModels: h.FailedModels, Healthy: w.Ready(), Live: w.Live,
		Since: w.Since.Unix(), Saturated: h.Saturated, Pool: w.Lane.Pool,
		Bundle: w.Lane.Bundle, BundleConfigHash: h.BundleConfigHash,
	}
}

// list returns l, and an empty list in place of nil, because clients iterate over it.
func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// unique sorts l and drops repeats.
func unique(l []string) []string {
	slices.Sort(l)
	return slices.Compact(l)
}

// rate computes the answered requests per second, at most once a second.
type rate struct {
	mu    sync.Mutex
	at    time.Time
	count uint64
	last  float64
}

func (r *rate) now(count uint64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch passed := now.Sub(r.at); {
	case r.at.IsZero():
		r.at, r.count = now, count
	case passed >= time.Second:
		r.last = float64(count-r.count) / passed.Seconds()
		r.at, r.count = now, count
	}
	return r.last
}
