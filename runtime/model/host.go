package model

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
)

// Options are the settings of a Host. Zero fields take the defaults in brackets.
type Options struct {
	Catalog *catalog.Catalog // required
	// Tasks maps each family of models to its task, which decides what a load reads from the
	// model's files. Families that are missing are not served. Required.
	Tasks     map[catalog.Family]arch.Task
	Hub       *hub.Resolver    // required; finds and fetches weights, and is closed with the host
	Devices   []engine.Options // equal GPUs, or the CPU with its number of threads [the CPU]
	Null      *Null            // instead of Devices: nothing is computed [nil: real devices]
	Precision string           // auto, fp32, bf16, int8, fp16 or fp8 [auto]
	// of the weights on a CPU of several nodes: auto, interleave or copy [auto: by size and free
	// memory]
	Placement string
	GPUType   string // machine type that the GPUs are reported as [derived from their name]

	Pinned []string // ids whose models are never unloaded for memory or idleness
	// a load that takes longer fails; the next load resumes its downloads [30 min]
	LoadTimeout time.Duration
	IdleEvict   time.Duration // a model that was not used for this long is unloaded [never]
	// a load waits this long for the last user of a model that must be unloaded for it [30 s]
	EvictWait time.Duration
	// bytes of packed weights on each device, and in the host's memory of what models keep
	// [bounded by free memory only]
	MemoryBudget int64
	ShortTokens  int // texts of more tokens have programs of their own [arch.DefaultShortLen]
	// the memory of programs for long texts that no request has used for this long is given up
	// [1 min]
	LongIdle time.Duration
	// a cold request waits this long for its model, then gets MODEL_LOADING [2 s]
	LoadWait        time.Duration
	MaxBatchTokens  int              // overrides the profiles' max_batch_tokens
	Batch           batch.Options    // see batch.Options
	MaxQueueItems   int              // [2,048]
	MaxLoRAs        int              // LoRA adapters of one model at a time [10]
	LabelCacheBytes int64            // of the rows of labels that one model keeps [256 MiB]
	MemoryThreshold float64          // share of memory in use above which unused models are unloaded [0.95]
	Metrics         *metrics.Metrics // required
	Log             *slog.Logger     // [slog.Default()]

	// Intercept, if set, is called before a batch runs on its device. If it returns an error, the
	// batch fails with it and does not run. Tests use it to simulate a device that runs out of
	// memory or is lost.
	Intercept func(*engine.Batch) error

	watch time.Duration // interval of the registry's monitor [registry.Registry.Watch's default]
}

// Host holds the devices of one inference process, its catalog and its loaded models. Its methods
// are safe for concurrent use.
type Host struct {
	opt        Options
	snapshot   atomic.Pointer[snapshot]        // the catalog snapshot; replaced by SetCatalog
	swap       lockorder.Mutex[lockorder.Swap] // held by SetCatalog
	devices    []*device
	slots      *batch.Scheduler // slots of all devices
	models     *registry.Registry[*Model]
	loaded     sync.Map      // weights key → *Model, while it is loaded
	seen       sync.Map      // names of all models that were loaded since the start, for the metrics
	sizes      sync.Map      // weights key → bytes on each device, of all that were loaded since the start
	memory     func() memory // reads the memory of the host
	usage      usage
	records    func()                    // tests set it: called before programs are recorded
	pins       []string                  // see SetPinned; guarded by swap
	finished   atomic.Uint64             // batches
	finishedAt atomic.Pointer[time.Time] // of the last of them; nil: none did
	shrinks    atomic.Bool               // the next tick shrinks the arenas
	lost       chan struct{}             // closed when a device failed for good
	lose       sync.Once
}

// slotsInFlight is the number of batches that a runner takes at a time.
const slotsInFlight = 2

// New opens the devices and returns a Host without loaded models.
func New(opt Options) (*Host, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if opt.LoadWait == 0 {
		opt.LoadWait = 2 * time.Second
	}
	if opt.MaxQueueItems == 0 {
		opt.MaxQueueItems = 2048
	}
	if opt.LongIdle == 0 {
		opt.LongIdle = time.Minute
	}
	if opt.LabelCacheBytes == 0 {
		opt.LabelCacheBytes = 256 << 20
	}
	if opt.MaxLoRAs == 0 {
		opt.MaxLoRAs = 10
	}
	if opt.MemoryThreshold == 0 {
		opt.MemoryThreshold = 0.95
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if len(opt.Devices) == 0 {
		opt.Devices = []engine.Options{{}}
	}
	devices := nullDevices()
	if opt.Null == nil {
		var err error
		if devices, err = openDevices(opt.Devices); err != nil {
			return nil, err
		}
	}
	h := &Host{
		opt:     opt,
		devices: devices,
		slots:   batch.NewScheduler(len(devices), slotsInFlight),
		lost:    make(chan struct{}),
		memory:  hostMemory,
	}
	if err := h.checkPrecision(opt.Precision); err != nil {
		closeDevices(devices)
		return nil, err
	}
	v, err := h.newSnapshot(opt.Catalog)
	if err != nil {
		closeDevices(devices)
		return nil, err
	}
	h.snapshot.Store(v)
	r := opt.registry()
	r.Classify, r.Short, r.NoMemory, r.Changed = classify, h.short, unloadingHelps, h.changed
	r.Panicked = func(key string, p *guard.Panic) {
		h.opt.Log.Error("panic while a model was loaded", "weights", key, "panic", p.Value,
			"stack", string(p.Stack))
	}
	r.Tick = h.giveUpLong
	r.Pinned = func(key string) bool { return h.snapshot.Load().pinned[key] }
	h.models = registry.New[*Model](r)
	h.models.Watch(opt.watch)
	opt.Metrics.QueueDepth(func(report func(string, int)) {
		h.models.Each(func(_ string, m *Model) { report(m.name, m.Queued()) })
	})
	opt.Metrics.Models(h.reportModels)
	opt.Metrics.DeviceMemory(h.reportMemory)
	opt.Metrics.GraphsRefused(h.reportRefused)
	opt.Metrics.Activations(func(report func(string, int64)) {
		for _, d := range h.devices {
			if d.runner != nil {
				has := d.runner.Stats()
				report(d.name, has.ArenaBytes+has.SlotBytes+has.StateBytes)
			}
		}
	})
	return h, nil
}

// Close unloads every model and closes the hub resolver and the devices. No request may be running.
func (h *Host) Close() {
	h.models.Close()
	h.opt.Hub.Close()
	closeDevices(h.devices)
}

// Preload loads the model of id, with the adapter that its requests get if they name none, and
// waits until both are loaded.
func (h *Host) Preload(ctx context.Context, id string) error {
	m, err := h.Describe(id)
	if err != nil {
		return err
	}
	if err := m.Usable(); err != nil {
		return err
	}
	if len(m.Members) > 0 {
		return h.preloadAll(ctx, m)
	}
	ref, err := h.models.Acquire(ctx, h.key(m), h.loader(m))
	if err != nil {
		return fmt.Errorf("model %s: %w", id, err)
	}
	defer ref.Release()
	adapter, has, err := LoRAOf(m, m.Runtime, nil)
	if has && err == nil && h.opt.Null == nil {
		err = ref.Model().adapters.await(ctx, adapter, m)
	}
	if err != nil {
		return fmt.Errorf("model %s: %w", id, err)
	}
	return nil
}

// LostC returns a channel that closes when a device is lost. The process should then drain and
// exit.
func (h *Host) LostC() <-chan struct{} { return h.lost }

// changed logs and counts a model's new state.
func (h *Host) changed(key string, s registry.State) {
	h.opt.Log.Info("model "+string(s), "weights", key)
	// requested just before its entry was removed
	if _, known := h.snapshot.Load().shared[key]; s == registry.Loaded && !known {
		h.models.Unload(key)
	}
}

// reportModels reports the bytes of packed weights of every loaded model, and 0 for every catalog
// model that was ever loaded. A model that was removed from the catalog is reported until it is
// unloaded.
func (h *Host) reportModels(report func(model, device string, bytes int64)) {
	h.models.Each(func(_ string, m *Model) {
		for i, r := range m.replicas {
			report(m.name, h.devices[i].name, r.Bytes())
		}
	})
	v := h.snapshot.Load()
	h.seen.Range(func(name, _ any) bool {
		if _, ok := v.keys[name.(string)]; !ok {
			h.seen.Delete(name)
			return true
		}
		for _, d := range h.devices {
			report(name.(string), d.name, 0)
		}
		return true
	})
}

// Lost reports whether a device is lost, which closes LostC.
func (h *Host) Lost() bool {
	select {
	case <-h.lost:
		return true
	default:
		return false
	}
}

// Precision returns the precision in which models run by default. A profile in float32 on the CPU
// and an fp16 checkpoint on a GPU may differ.
func (h *Host) Precision() string {
	if c, ok := engine.ParseCompute(h.opt.Precision); ok {
		return c.String()
	}
	return h.devices[0].about.DefaultCompute().String()
}

// Catalog returns the current catalog.
func (h *Host) Catalog() *catalog.Catalog { return h.snapshot.Load().catalog }

// Describe returns the catalog's entry for a model id. For an unknown id it returns the 404 error
// with suggestions.
func (h *Host) Describe(id string) (*catalog.Resolved, error) {
	m, err := h.snapshot.Load().catalog.Resolve(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// DescribeOpenAI is Describe for OpenAI-style routes, where "org__name" also names "org/name".
func (h *Host) DescribeOpenAI(id string) (*catalog.Resolved, error) {
	m, err := h.snapshot.Load().catalog.ResolveOpenAI(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// Full reports whether a request for id is certain to find no room. That is so if its model, or one
// of a union's, is loaded and none of its queues takes one more item. It is called before the
// request's body is read, so that an overloaded server spends almost nothing on requests that it
// will refuse. In all other cases, an unknown id included, it returns false, and the request is
// decided later. retry is the time after which the client may try again; it is 0 if the queues are
// full by number of items.
func (h *Host) Full(id string) (retry time.Duration, full bool) {
	for _, key := range h.snapshot.Load().keys[id] {
		l, ok := h.loaded.Load(key)
		if !ok {
			continue
		}
		if e := l.(*Model).full(); e != nil {
			return e.RetryAfter, true
		}
	}
	return 0, false
}

// Loaded returns the loaded model of id, or nil if it is not loaded or a union. The model may be
// unloaded at any time: call Acquire to use it.
func (h *Host) Loaded(id string) *Model {
	keys := h.snapshot.Load().keys[id]
	if len(keys) != 1 {
		return nil
	}
	l, ok := h.loaded.Load(keys[0])
	if !ok {
		return nil
	}
	return l.(*Model)
}

// AllFull is Full for a request whose model is not known yet. It reports whether there are loaded
// models and none of them has room.
func (h *Host) AllFull() (retry time.Duration, full bool) {
	h.loaded.Range(func(_, l any) bool {
		e := l.(*Model).full()
		if e == nil {
			retry, full = 0, false
			return false
		}
		if !full || e.RetryAfter < retry {
			retry = e.RetryAfter
		}
		full = true
		return true
	})
	return retry, full
}

// QueueLimit returns the number of items that a queue takes, Options.MaxQueueItems.
func (h *Host) QueueLimit() int { return h.opt.MaxQueueItems }

// LabelCacheBytes returns the bound on the rows of labels that one model keeps.
func (h *Host) LabelCacheBytes() int64 { return h.opt.LabelCacheBytes }

// QueueWait returns the bound on the predicted wait of a request in a queue; 0: no bound.
func (h *Host) QueueWait() time.Duration { return h.opt.Batch.MaxBacklog }
