package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/weights/hub"
)

// sourceFlags say which models exist and where their weights come from. The environment variables
// have the reference's names. A number or a duration has the tag range (see internal/cli).
type sourceFlags struct {
	ModelsDir  string   `help:"Directory of model YAML files, or an s3:// or gs:// URL of one; replaces the built-in catalog." env:"SIE_MODELS_DIR"`
	Bundle     string   `help:"Serve the models of this bundle." short:"b" env:"SIE_BUNDLE" xor:"which"`
	Models     []string `help:"Serve these ids only; also a directory, a hub id, or id=directory." short:"m" sep:"," env:"SIE_MODEL_FILTER" xor:"which"`
	LocalCache string   `help:"Weights cache in the Hugging Face layout." env:"SIE_LOCAL_CACHE" type:"path"`
	HFFallback bool     `help:"Download weights from the hub that are in no cache." env:"SIE_HF_FALLBACK" default:"true" negatable:""`

	ClusterCache string  `help:"Bucket that a cluster shares, s3://name/prefix or gs://name/prefix: asked before the hub, and filled with what comes from it." env:"SIE_CLUSTER_CACHE"`
	DiskCache    bool    `name:"disk-cache-enabled" help:"Remove the weights used longest ago when the disk gets full." env:"SIE_DISK_CACHE_ENABLED" default:"true" negatable:""`
	DiskPercent  float64 `name:"disk-pressure-threshold-percent" help:"Disk use above which a download removes them." env:"SIE_DISK_PRESSURE_THRESHOLD_PERCENT" default:"85" range:"50..99"`

	preload     []string // references of --preload, which are served in addition to the others
	preloadFlag string   // what errors call --preload where it is another flag
	known       []string // those in preload that model files described at the start; their files may go later
}

// computeFlags say what the models run on.
type computeFlags struct {
	Device    string `help:"auto (GPUs if they can be used, else the CPU), cpu, cuda (every GPU), cuda:0 or cuda:0,1; null: no device, made-up answers, for tests." short:"d" env:"SIE_DEVICE" default:"auto"`
	Precision string `help:"auto; fp32, bf16 or int8 on the CPU; bf16, fp16 or fp8 on GPUs." env:"SIE_PRECISION" default:"auto" enum:"auto,fp32,bf16,int8,fp16,fp8"`
	Threads   int    `help:"Compute threads of the CPU; 0: one for each physical core this process may use." env:"SIE_THREADS" range:"0..1024"`
	ISA       string `help:"Upper bound on the CPU's instruction set: best, avx2, avx512, avx512-vnni, avx512-bf16 or amx; neon or neon-dot on arm64." env:"SIE_ISA" default:"best" enum:"best,avx2,avx512,avx512-vnni,avx512-bf16,amx,neon,neon-dot"`
	NUMA      string `name:"numa" help:"Where weights lie on a CPU with several memory nodes: interleave, copy (one for each node), auto (copy if all fit in half of the free memory or budget), or off: as the kernel likes." env:"SIE_NUMA" default:"auto" enum:"auto,interleave,copy,off"`
	Graphs    string `name:"cuda-graphs" help:"on, or off: GPUs get small batches kernel by kernel." env:"SIE_CUDA_GRAPHS" default:"on" enum:"on,off"`
	PDL       string `name:"cuda-pdl" help:"Programmatic dependent launch, a kernel that starts under the end of the one before: on, launches (not inside CUDA graphs), or off. Results are the same; it is for finding faults." env:"SIE_CUDA_PDL" default:"on" enum:"on,launches,off"`

	NullLoad  time.Duration `help:"With --device null: how long a model takes to load." hidden:"" env:"SIE_NULL_LOAD" default:"0s" range:"0..1h"`
	NullBatch time.Duration `help:"With --device null: how long a batch takes." hidden:"" env:"SIE_NULL_BATCH" default:"0s" range:"0..1h"`
	GPUType   string        `help:"What the GPUs count as for clients that choose a machine profile, instead of what their name says." env:"SIE_GPU_TYPE"`
}

// cpu returns the options of a CPU device that the flags ask for.
func (f *computeFlags) cpu() engine.Options {
	return engine.Options{Threads: f.Threads, OneNode: f.NUMA == numaOff, ISA: map[string]engine.ISA{
		"best":        engine.BestISA,
		"avx2":        engine.AVX2,
		"avx512":      engine.AVX512,
		"avx512-vnni": engine.AVX512VNNI,
		"avx512-bf16": engine.AVX512BF16,
		"amx":         engine.AMX,
		"neon":        engine.NEON,
		"neon-dot":    engine.NEONDot,
	}[f.ISA]}
}

// numaOff is the value of --numa that makes all nodes one.
const numaOff = "off"

// placement returns the model.Options.Placement that --numa asks for.
func (f *computeFlags) placement() string {
	if f.NUMA == numaOff {
		return model.Auto // there is one node
	}
	return f.NUMA
}

// devices chooses the devices by the flags and by what this machine has.
func (f *computeFlags) devices() (deviceChoice, error) {
	c, err := chooseDevices(f.Device, f.Precision, f.cpu(), engine.FindGPUs)
	for i := range c.options {
		c.options[i].NoGraphs = f.Graphs == "off"
		c.options[i].Overlap = map[string]engine.Overlap{
			"launches": engine.OverlapLaunches, "off": engine.OverlapNever,
		}[f.PDL]
	}
	return c, err
}

// hub returns a resolver that finds weights. progress, if not nil, is called during downloads. The
// environment variables are the reference's and Hugging Face's.
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
		o.DiskThreshold = f.DiskPercent / 100
	}
	o.Progress, o.Log = progress, log
	o.UserAgent = "sie-server/" + build.Version
	r, err := hub.New(o)
	return r, o, err
}

// batchFlags bound the queues, the loads and the memory of models.
type batchFlags struct {
	MaxBatchTokens   int           `help:"Tokens of a batch; 0: the model's own." env:"SIE_MAX_BATCH_TOKENS" range:"0..1048576"`
	MaxBatchRequests int           `help:"Items at which a batch may leave." env:"SIE_MAX_BATCH_REQUESTS" default:"64" range:"1..65536"`
	MaxBatchWait     float64       `name:"max-batch-wait-ms" help:"Initial wait of a batch on a busy device, in ms." env:"SIE_MAX_BATCH_WAIT_MS" default:"15" range:"0..10000"`
	IdleCoalesce     float64       `name:"idle-coalesce-ms" help:"Pause awaited before the first batch on an idle device, in ms." env:"SIE_IDLE_COALESCE_MS" default:"0" range:"0..10000"`
	MaxQueued        int           `name:"max-concurrent-requests" help:"Items queued per model; more get a retryable 503." env:"SIE_MAX_CONCURRENT_REQUESTS" default:"2048" range:"1..1048576"`
	MaxQueueWait     time.Duration `help:"Predicted wait beyond which a new request gets a retryable 503; 0: as long as there is room." env:"SIE_MAX_QUEUE_WAIT" default:"5s" range:"0|10ms..1h"`
	LoadWait         time.Duration `help:"How long a cold request waits for its model before MODEL_LOADING." env:"SIE_LOAD_WAIT" default:"2s" range:"1us..1h"`
	LoadTimeout      int           `name:"model-load-timeout-s" help:"Seconds after which a load fails; what was downloaded is kept." env:"SIE_MODEL_LOAD_TIMEOUT_S" default:"1800" range:"1..86400"`
	Pinned           []string      `name:"pinned-models" help:"Model ids to load before the server is ready and never to unload." sep:"," env:"SIE_PINNED_MODELS"`
	IdleEvict        int           `name:"idle-evict-s" help:"Seconds after which an unused model is unloaded; 0: never." env:"SIE_IDLE_EVICT_S" default:"0" range:"0|10..86400"`
	MemoryBudget     int64         `help:"Bytes of packed weights on each device, and on CPUs of the labels kept with them; 0: as much as there is memory." env:"SIE_MEMORY_BUDGET" default:"0" range:"0..1125899906842624"`
	MemoryPercent    float64       `name:"memory-pressure-threshold-percent" help:"Memory use above which unused models are unloaded." env:"SIE_MEMORY_PRESSURE_THRESHOLD_PERCENT" default:"95" range:"50..99"`
	MaxLoRAs         int           `name:"max-loras-per-model" help:"LoRA adapters of one model at a time; the least recently used one goes." env:"SIE_MAX_LORAS_PER_MODEL" default:"10" range:"1..64"`
	LabelCache       int64         `name:"label-cache-mib" help:"MiB of what one model with a label tower keeps of labels, within --memory-budget; the least recently used go." env:"SIE_LABEL_CACHE_MIB" default:"256" range:"1..1048576"`
	Adaptive         bool          `name:"adaptive-batching" help:"Adapt the batch wait to the latency seen." env:"SIE_ADAPTIVE_BATCHING__ENABLED" default:"true" negatable:""`
	TargetP50        float64       `name:"adaptive-target-p50-ms" help:"Latency target of adaptive batching, in ms; 0: calibrated." env:"SIE_ADAPTIVE_BATCHING__TARGET_P50_MS" range:"0..60000"`
}

func (f *batchFlags) options() batch.Options {
	return batch.Options{
		MaxRequests:  f.MaxBatchRequests,
		MaxWait:      max(1, msec(f.MaxBatchWait)),
		IdleCoalesce: msec(f.IdleCoalesce),
		MaxItems:     f.MaxQueued,
		MaxBacklog:   f.MaxQueueWait,
		Adaptive:     batch.AdaptiveOptions{Disabled: !f.Adaptive, TargetP50: msec(f.TargetP50)},
	}
}

func msec(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// newWorker makes a service from flags. bounds is for the entrances that admit requests.
func newWorker(src *sourceFlags, cmp *computeFlags, bat *batchFlags, c *catalog.Catalog, log *slog.Logger,
	m *metrics.Metrics, bounds admit.Options, progress func(hub.Progress)) (*service.Service, error) {
	var null *model.Null
	var dev deviceChoice
	if strings.EqualFold(strings.TrimSpace(cmp.Device), "null") {
		null = &model.Null{LoadTime: cmp.NullLoad, BatchTime: cmp.NullBatch}
		dev.options, dev.why = []engine.Options{{}}, "--device null computes nothing: every answer is made up"
	} else {
		var err error
		if dev, err = cmp.devices(); err != nil {
			return nil, err
		}
	}
	for _, w := range dev.warnings {
		log.Warn("device", "problem", w)
	}
	level := slog.LevelInfo
	if dev.fallback {
		level = slog.LevelWarn
	}
	name := dev.names()
	if null != nil {
		name, level = "null", slog.LevelWarn
	}
	log.Log(context.Background(), level, "device", "chosen", name, "why", dev.why)
	h, _, err := src.hub(progress, log)
	if err != nil {
		return nil, err
	}
	return service.New(service.Options{Admit: bounds, Options: model.Options{
		Catalog: c, Hub: h, Devices: dev.options, Null: null, Precision: cmp.Precision, GPUType: cmp.GPUType,
		Placement: cmp.placement(),
		LoadWait:  bat.LoadWait, MaxBatchTokens: bat.MaxBatchTokens, Batch: bat.options(),
		MaxQueueItems: bat.MaxQueued, Pinned: ids(bat.Pinned),
		MaxLoRAs: bat.MaxLoRAs, LabelCacheBytes: bat.LabelCache << 20,
		LoadTimeout: time.Duration(bat.LoadTimeout) * time.Second,
		IdleEvict:   time.Duration(bat.IdleEvict) * time.Second, MemoryBudget: bat.MemoryBudget,
		MemoryThreshold: bat.MemoryPercent / 100, Metrics: m, Log: log,
	}})
}
