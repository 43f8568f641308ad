package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/worker"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/hub"
)

// sourceFlags say which models there are and where their weights come from. Environment names are the reference's.
type sourceFlags struct {
	ModelsDir  string   `help:"Directory of model YAML files, or an s3:// or gs:// URL of one; replaces the built-in catalog." env:"SIE_MODELS_DIR"`
	Bundle     string   `help:"Serve the models of this bundle." short:"b" env:"SIE_BUNDLE" xor:"which"`
	Models     []string `help:"Serve these ids only; also a directory, a hub id, or id=directory." short:"m" sep:"," env:"SIE_MODEL_FILTER" xor:"which"`
	LocalCache string   `help:"Weights cache in the Hugging Face layout." env:"SIE_LOCAL_CACHE" type:"path"`
	HFFallback bool     `help:"Download weights from the hub that are in no cache." env:"SIE_HF_FALLBACK" default:"true" negatable:""`

	ClusterCache string  `help:"Bucket that a cluster shares, s3://name/prefix or gs://name/prefix: asked before the hub, and filled with what comes from it." env:"SIE_CLUSTER_CACHE"`
	DiskCache    bool    `name:"disk-cache-enabled" help:"Remove the weights used longest ago when the disk gets full." env:"SIE_DISK_CACHE_ENABLED" default:"true" negatable:""`
	DiskPercent  float64 `name:"disk-pressure-threshold-percent" help:"Disk use above which a download removes them." env:"SIE_DISK_PRESSURE_THRESHOLD_PERCENT" default:"85"`
}

// computeFlags say what the models run on.
type computeFlags struct {
	Device    string `help:"auto (GPUs if they can be used, else the CPU), cpu, cuda (every GPU), cuda:0 or cuda:0,1." short:"d" env:"SIE_DEVICE" default:"auto"`
	Precision string `help:"auto; fp32, bf16 or int8 on the CPU; bf16, fp16 or fp8 on GPUs." env:"SIE_PRECISION" default:"auto" enum:"auto,fp32,bf16,int8,fp16,fp8"`
	Threads   int    `help:"Compute threads of the CPU; 0: the CPUs this process may use." env:"SIE_THREADS"`
	ISA       string `help:"Upper bound on the CPU's instruction set: best, avx2, avx512, avx512-vnni or amx." env:"SIE_ISA" default:"best" enum:"best,avx2,avx512,avx512-vnni,amx"`
	Graphs    string `name:"cuda-graphs" help:"on, or off: GPUs get small batches kernel by kernel." env:"SIE_CUDA_GRAPHS" default:"on" enum:"on,off"`
	GPUType   string `help:"What the GPUs count as for clients that choose a machine profile, instead of what their name says." env:"SIE_GPU_TYPE"`
}

// cpu is the CPU as the flags want it.
func (f *computeFlags) cpu() (engine.Options, error) {
	if f.Threads < 0 {
		return engine.Options{}, fmt.Errorf("--threads must be at least 0, got %d", f.Threads)
	}
	return engine.Options{Threads: f.Threads, ISA: map[string]engine.ISA{"best": engine.BestISA, "avx2": engine.AVX2,
		"avx512": engine.AVX512, "avx512-vnni": engine.AVX512VNNI, "amx": engine.AMX}[f.ISA]}, nil
}

// devices is what the flags and this machine come to.
func (f *computeFlags) devices() (choice, error) {
	cpu, err := f.cpu()
	if err != nil {
		return choice{}, err
	}
	c, err := chooseDevices(f.Device, f.Precision, cpu, engine.FindGPUs)
	for i := range c.options {
		c.options[i].NoGraphs = f.Graphs == "off"
	}
	return c, err
}

// hub finds weights; progress, if not nil, hears of downloads. The environment is the reference's and Hugging Face's.
func (f *sourceFlags) hub(progress func(hub.Progress), log *slog.Logger) (*hub.Resolver, hub.Options, error) {
	o, err := hub.OptionsFromEnv(os.LookupEnv)
	if f.LocalCache != "" {
		o.CacheDir = f.LocalCache
	}
	if err != nil && o.CacheDir == "" {
		return nil, o, err
	}
	o.Offline = o.Offline || !f.HFFallback
	if o.Bucket, err = openBucket("--cluster-cache", f.ClusterCache); err != nil {
		return nil, o, err
	}
	if f.DiskCache {
		if f.DiskPercent < 50 || f.DiskPercent > 99 {
			return nil, o, fmt.Errorf("--disk-pressure-threshold-percent must be between 50 and 99, got %v", f.DiskPercent)
		}
		o.DiskThreshold = f.DiskPercent / 100
	}
	o.Progress, o.Log = progress, log
	o.UserAgent = "sie-server/" + build.Version
	r, err := hub.New(o)
	return r, o, err
}

// catalog reads the catalog that the flags describe.
func (f *sourceFlags) catalog() (*catalog.Catalog, *catalog.Bundle, error) {
	all, err := f.files()
	if err != nil {
		return nil, nil, err
	}
	return f.narrow(all)
}

// narrow keeps of all what the flags ask for.
func (f *sourceFlags) narrow(all *catalog.Catalog) (*catalog.Catalog, *catalog.Bundle, error) {
	switch {
	case f.Bundle != "":
		bundles, err := catalog.BuiltinBundles()
		if err != nil {
			return nil, nil, err
		}
		b, err := bundles.ByName(f.Bundle)
		if err != nil {
			return nil, nil, fmt.Errorf("--bundle: %w", err)
		}
		return all.InBundle(b), b, nil
	case len(f.Models) > 0:
		c, err := selectModels(all, f.Models, f.adHocHub)
		return c, nil, err
	}
	return all, nil, nil
}

// defaultModels are the ids that routes without a model choose from: the flag's, which must exist, else those of -m.
func defaultModels(flag, refs []string, cat *catalog.Catalog) ([]string, error) {
	var out []string
	for _, id := range flag {
		m, err := cat.Resolve(strings.TrimSpace(id))
		if err != nil {
			return nil, fmt.Errorf("--default-model: %w", err)
		}
		out = append(out, m.ID)
	}
	if out != nil {
		return out, nil
	}
	for _, ref := range refs {
		id, _, _ := strings.Cut(strings.TrimSpace(ref), "=")
		if catalog.IsPath(id) || isModelDir(id) {
			id = catalog.AdHocID(id)
		}
		if m, err := cat.Resolve(id); err == nil {
			out = append(out, m.ID)
		}
	}
	return out, nil
}

// files are the model files that the flags name, or the built-in ones.
func (f *sourceFlags) files() (*catalog.Catalog, error) {
	switch {
	case f.ModelsDir == "":
		return catalog.Builtin()
	case bucket.IsURL(f.ModelsDir):
		return loadFromBucket(context.Background(), f.ModelsDir)
	}
	return catalog.LoadDir(kong.ExpandPath(f.ModelsDir))
}

// selectModels narrows all to the given references: a catalog id, "id=directory" to take its weights from there, a
// directory, or the id of a hub repository, of which onHub makes a model.
func selectModels(all *catalog.Catalog, refs []string, onHub func(id string) (*catalog.Model, error)) (*catalog.Catalog, error) {
	var ids []string
	var extra []*catalog.Model
	for _, ref := range refs {
		ref = strings.TrimSpace(ref)
		id, dir, pinned := strings.Cut(ref, "=")
		switch {
		case ref == "":
		case pinned:
			m, err := withWeights(all, id, dir)
			if err != nil {
				return nil, err
			}
			extra = append(extra, m)
		case catalog.IsPath(ref) || isModelDir(ref):
			m, err := adHocDir(catalog.AdHocID(ref), ref)
			if err != nil {
				return nil, err
			}
			extra = append(extra, m)
		default:
			ids = append(ids, ref)
		}
	}
	c, missing := all.Select(ids)
	for _, id := range missing {
		base, profile, variant := strings.Cut(id, ":")
		if variant || !strings.Contains(base, "/") {
			return nil, fmt.Errorf("--models %s: not in the catalog%s", id, hint(all, id, profile))
		}
		m, err := onHub(id)
		if err != nil {
			return nil, fmt.Errorf("--models %s: %w", id, err)
		}
		extra = append(extra, m)
	}
	return c.With(extra...)
}

func hint(c *catalog.Catalog, id, _ string) string {
	if near := c.Suggest(id); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// withWeights is the catalog's entry for id, or an ad-hoc one, with its weights in dir.
func withWeights(all *catalog.Catalog, id, dir string) (*catalog.Model, error) {
	if !isModelDir(dir) {
		return nil, fmt.Errorf("--models %s=%s: %s is not a model directory (it has neither config.json nor modules.json)", id, dir, dir)
	}
	i := slices.IndexFunc(all.Models(), func(m *catalog.Model) bool { return m.ID == id })
	if i < 0 {
		return adHocDir(id, dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m := *all.Models()[i]
	m.WeightsPath = abs
	return &m, nil
}

// sketchTime bounds the question to the hub what a model is.
const sketchTime = 30 * time.Second

// adHocHub is a hub repository without a model file, served as what its files say. Where they cannot be had now it counts as an
// encoder of dense vectors, which the load refuses when it is none.
func (f *sourceFlags) adHocHub(id string) (*catalog.Model, error) {
	info := catalog.AdHocInfo{HFID: id}
	resolver, _, err := f.hub(nil, nil)
	if err != nil {
		return nil, err
	}
	defer resolver.Close()
	ctx, cancel := context.WithTimeout(context.Background(), sketchTime)
	defer cancel()
	dir, remove, err := resolver.Sketch(ctx, id, "", arch.DetectedBy...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sie-server: warning: what %s is cannot be seen now, so it is taken for an encoder of dense vectors: %v\n", id, err)
		return catalog.AdHoc(id, info)
	}
	defer remove()
	if info.Adapter, info.Tasks, err = adHocTasks(dir); err != nil {
		return nil, err
	}
	return catalog.AdHoc(id, info)
}

func adHocDir(id, dir string) (*catalog.Model, error) {
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, rest)
	}
	if !isModelDir(dir) {
		return nil, fmt.Errorf("--models %s: not a model directory (it has neither config.json nor modules.json)", dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info := catalog.AdHocInfo{WeightsPath: abs}
	if info.Adapter, info.Tasks, err = adHocTasks(abs); err != nil {
		return nil, fmt.Errorf("--models %s: %w", dir, err)
	}
	return catalog.AdHoc(id, info)
}

func isModelDir(dir string) bool {
	for _, name := range []string{"config.json", "modules.json"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// batchFlags bound the queues.
type batchFlags struct {
	MaxBatchTokens   int           `help:"Tokens of a batch; 0: the model's own." env:"SIE_MAX_BATCH_TOKENS"`
	MaxBatchRequests int           `help:"Items at which a batch may leave." env:"SIE_MAX_BATCH_REQUESTS" default:"64"`
	MaxBatchWait     float64       `name:"max-batch-wait-ms" help:"Initial wait of a batch on a busy device, in ms." env:"SIE_MAX_BATCH_WAIT_MS" default:"15"`
	IdleCoalesce     float64       `name:"idle-coalesce-ms" help:"Pause awaited before the first batch on an idle device, in ms." env:"SIE_IDLE_COALESCE_MS" default:"0"`
	MaxQueued        int           `name:"max-concurrent-requests" help:"Items queued per model; more get a retryable 503." env:"SIE_MAX_CONCURRENT_REQUESTS" default:"2048"`
	LoadWait         time.Duration `help:"How long a cold request waits for its model before MODEL_LOADING." env:"SIE_LOAD_WAIT" default:"2s"`
	LoadTimeout      int           `name:"model-load-timeout-s" help:"Seconds after which a load fails; what was downloaded is kept." env:"SIE_MODEL_LOAD_TIMEOUT_S" default:"1800"`
	Pinned           []string      `name:"pinned-models" help:"Model ids to load before the server is ready and never to unload." sep:"," env:"SIE_PINNED_MODELS"`
	IdleEvict        int           `name:"idle-evict-s" help:"Seconds after which an unused model is unloaded; 0: never." env:"SIE_IDLE_EVICT_S" default:"0"`
	MemoryBudget     int64         `help:"Bytes of packed weights on each device; 0: as much as there is memory." env:"SIE_MEMORY_BUDGET" default:"0"`
	MemoryPercent    float64       `name:"memory-pressure-threshold-percent" help:"Memory use above which unused models are unloaded." env:"SIE_MEMORY_PRESSURE_THRESHOLD_PERCENT" default:"95"`
	MaxLoRAs         int           `name:"max-loras-per-model" help:"LoRA adapters of one model at a time; the least recently used one goes." env:"SIE_MAX_LORAS_PER_MODEL" default:"10"`
	Adaptive         bool          `name:"adaptive-batching" help:"Adapt the batch wait to the latency seen." env:"SIE_ADAPTIVE_BATCHING__ENABLED" default:"true" negatable:""`
	TargetP50        float64       `name:"adaptive-target-p50-ms" help:"Latency target of adaptive batching, in ms; 0: calibrated." env:"SIE_ADAPTIVE_BATCHING__TARGET_P50_MS"`
}

func (f *batchFlags) options() (batch.Options, error) {
	for _, x := range []struct {
		name   string
		v      float64
		lo, hi float64
	}{{"max-batch-tokens", float64(f.MaxBatchTokens), 0, 1 << 20}, {"max-batch-requests", float64(f.MaxBatchRequests), 1, 1 << 16},
		{"max-batch-wait-ms", f.MaxBatchWait, 0, 10_000}, {"idle-coalesce-ms", f.IdleCoalesce, 0, 10_000},
		{"max-concurrent-requests", float64(f.MaxQueued), 1, 1 << 20}, {"adaptive-target-p50-ms", f.TargetP50, 0, 60_000},
		{"memory-pressure-threshold-percent", f.MemoryPercent, 50, 99}, {"model-load-timeout-s", float64(f.LoadTimeout), 0, 86400},
		{"max-loras-per-model", float64(f.MaxLoRAs), 1, 64}, {"memory-budget", float64(f.MemoryBudget), 0, 1 << 50}} {
		if x.v < x.lo || x.v > x.hi {
			return batch.Options{}, fmt.Errorf("--%s must be between %v and %v, got %v", x.name, x.lo, x.hi, x.v)
		}
	}
	if f.IdleEvict != 0 && (f.IdleEvict < 10 || f.IdleEvict > 86400) {
		return batch.Options{}, fmt.Errorf("--idle-evict-s must be 0 or between 10 and 86400, got %d", f.IdleEvict)
	}
	return batch.Options{MaxRequests: f.MaxBatchRequests, MaxWait: msec(f.MaxBatchWait), IdleCoalesce: msec(f.IdleCoalesce),
		MaxItems: f.MaxQueued, Adaptive: batch.AdaptiveOptions{Disabled: !f.Adaptive, TargetP50: msec(f.TargetP50)}}, nil
}

// ids is a list of ids without what is empty in it.
func ids(list []string) []string {
	var out []string
	for _, id := range list {
		if id = strings.TrimSpace(id); id != "" {
			out = append(out, id)
		}
	}
	return out
}

func msec(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// newWorker wires a worker from flags.
func newWorker(src *sourceFlags, cmp *computeFlags, bat *batchFlags, c *catalog.Catalog, log *slog.Logger,
	m *obs.Metrics, progress func(hub.Progress)) (*worker.Worker, error) {
	dev, err := cmp.devices()
	if err != nil {
		return nil, err
	}
	for _, w := range dev.warnings {
		log.Warn("device", "problem", w)
	}
	level := slog.LevelInfo
	if dev.fallback {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "device", "chosen", dev.names(), "why", dev.why)
	bo, err := bat.options()
	if err != nil {
		return nil, err
	}
	h, _, err := src.hub(progress, log)
	if err != nil {
		return nil, err
	}
	return worker.New(worker.Options{Catalog: c, Hub: h, Devices: dev.options, Precision: cmp.Precision, GPUType: cmp.GPUType,
		LoadWait: bat.LoadWait, MaxBatchTokens: bat.MaxBatchTokens, Batch: bo, MaxQueueItems: bat.MaxQueued,
		Pinned: ids(bat.Pinned), MaxLoRAs: bat.MaxLoRAs, LoadTimeout: time.Duration(bat.LoadTimeout) * time.Second,
		IdleEvict: time.Duration(bat.IdleEvict) * time.Second, MemoryBudget: bat.MemoryBudget, MemoryThreshold: bat.MemoryPercent / 100, Metrics: m, Log: log})
}
