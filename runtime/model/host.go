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
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
)

// Options of a host. Zero fields take the defaults in brackets.
type Options struct {
	Catalog *catalog.Catalog // required
	// Tasks is what each family of models reads of its files; families that are not there are not
	// served. Required.
	Tasks     map[catalog.Family]arch.Task
	Hub       *hub.Resolver    // required; finds and fetches weights, and is closed with the host
	Devices   []engine.Options // equal GPUs, or the CPU and how many threads [the CPU]
	Precision string           // auto, fp32, bf16, int8, fp16 or fp8 [auto]
	GPUType   string           // what the GPUs count as [found from their name]

	Pinned          []string         // ids whose models are never unloaded
	LoadTimeout     time.Duration    // a load that takes longer fails; downloads go on from there at the next [30 min]
	IdleEvict       time.Duration    // a model that is not used for so long is unloaded [never]
	EvictWait       time.Duration    // a load waits this long for the last user of a model that has to go [30 s]
	MemoryBudget    int64            // bytes of packed weights on each device; 0: as much as there is memory
	LoadWait        time.Duration    // a cold request waits this long for its model, then gets MODEL_LOADING [2 s]
	MaxBatchTokens  int              // overrides the profiles' max_batch_tokens
	Batch           batch.Options    // as documented there
	MaxQueueItems   int              // [2,048]
	MaxLoRAs        int              // LoRA adapters of one model at a time [10]
	MemoryThreshold float64          // share of memory above which unused models are unloaded [0.95]
	Metrics         *metrics.Metrics // required
	Log             *slog.Logger     // [slog.Default()]

	// Intercept, if set, is called before a batch goes to the device; an error fails the batch
	// instead. It is how tests make a device run out of memory or get lost.
	Intercept func(*engine.Batch) error

	watch time.Duration // how often the registry looks at memory and idle models [as it says]
}

// Host is the devices of one inference process, the catalog, and the models that are loaded on
// them. Its methods are safe for concurrent use.
type Host struct {
	opt     Options
	view    atomic.Pointer[view]            // of the catalog; swapped by SetCatalog
	swap    lockorder.Mutex[lockorder.Swap] // held by SetCatalog
	devices []*device
	slots   *batch.Device // over all devices
	models  *registry.Registry[*Model]
	loaded  sync.Map      // by key: the *Model, while it is loaded
	seen    sync.Map      // names of the models that were loaded, for the metrics
	memory  func() memory // of the host
	usage   usage
	records func()        // called before programs are recorded, in tests; nil: nobody
	lost    chan struct{} // closed when a device failed for good
	lose    sync.Once
}

// slotsInFlight is how many batches a runner takes at a time.
const slotsInFlight = 2

// New opens the devices. No model is loaded yet.
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
	devices, err := openDevices(opt.Devices)
	if err != nil {
		return nil, err
	}
	h := &Host{opt: opt, devices: devices, slots: batch.NewDevices(len(devices), slotsInFlight), lost: make(chan struct{}),
		memory: hostMemory}
	if err := h.checkPrecision(opt.Precision); err != nil {
		closeDevices(devices)
		return nil, err
	}
	v, err := h.newView(opt.Catalog)
	if err != nil {
		closeDevices(devices)
		return nil, err
	}
	h.view.Store(v)
	h.models = registry.New[*Model](registry.Options{
		Classify: classify,
		Short:    h.short,
		NoMemory: curable,
		Pinned:   func(key string) bool { return h.view.Load().pinned[key] },
		Idle:     opt.IdleEvict,
		Timeout:  opt.LoadTimeout,
		Drain:    opt.EvictWait,
		Cooldowns: map[string]time.Duration{"OOM": time.Minute, "TIMEOUT": time.Minute, "ENGINE": time.Minute, "UNKNOWN": time.Minute,
			"STORAGE": 2 * time.Minute, "PLACEMENT": 10 * time.Minute},
		Changed: h.changed,
	})
	h.models.Watch(opt.watch)
	opt.Metrics.QueueDepth(func(report func(string, int)) {
		h.models.Each(func(_ string, m *Model) { report(m.name, m.Queued()) })
	})
	opt.Metrics.Models(h.reportModels)
	opt.Metrics.DeviceMemory(h.reportMemory)
	opt.Metrics.Activations(func(report func(string, int64)) {
		for _, d := range h.devices {
			has := d.runner.Stats()
			report(d.name, has.ArenaBytes+has.SlotBytes)
		}
	})
	return h, nil
}

// Close unloads every model and gives the devices back. No request may be running.
func (h *Host) Close() {
	h.models.Close()
	h.opt.Hub.Close()
	closeDevices(h.devices)
}

// Preload loads the model behind id and waits until it is there.
func (h *Host) Preload(ctx context.Context, id string) error {
	m, err := h.Describe(id)
	if err != nil {
		return err
	}
	if err := m.Usable(); err != nil {
		return err
	}
	ref, err := h.models.Acquire(ctx, h.key(m), h.loader(m))
	if err != nil {
		return fmt.Errorf("model %s: %w", id, err)
	}
	ref.Release()
	return nil
}

// LostC is closed when a device failed for good: the process should drain and exit.
func (h *Host) LostC() <-chan struct{} { return h.lost }

// changed logs and counts a model's new state.
func (h *Host) changed(key string, s registry.State) {
	h.opt.Log.Info("model "+string(s), "weights", key)
	if _, known := h.view.Load().copies[key]; s == registry.Loaded && !known { // asked for just before its entry was removed
		h.models.Unload(key)
	}
}

// reportModels reports the packed weights of every loaded model, and of those of the catalog that
// were loaded that they have none. A model that was removed is reported until it is gone.
func (h *Host) reportModels(report func(model, device string, bytes int64)) {
	h.models.Each(func(_ string, m *Model) {
		for i, d := range h.devices {
			report(m.name, d.name, m.copies[i].Bytes())
		}
	})
	v := h.view.Load()
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

// Lost reports whether LostC is closed.
func (h *Host) Lost() bool {
	select {
	case <-h.lost:
		return true
	default:
		return false
	}
}

// Precision is what models run in, but for a profile in float32 on the CPU and a checkpoint in fp16
// on a GPU.
func (h *Host) Precision() string {
	if c, ok := engine.ParseCompute(h.opt.Precision); ok {
		return c.String()
	}
	return h.devices[0].about.DefaultCompute().String()
}

// Catalog is the catalog as it is now.
func (h *Host) Catalog() *catalog.Catalog { return h.view.Load().catalog }

// Describe returns the catalog's entry for a model id, or the 404 with suggestions.
func (h *Host) Describe(id string) (*catalog.Resolved, error) {
	m, err := h.view.Load().catalog.Resolve(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// DescribeOpenAI is Describe for OpenAI-style routes, where "org__name" also names "org/name".
func (h *Host) DescribeOpenAI(id string) (*catalog.Resolved, error) {
	m, err := h.view.Load().catalog.ResolveOpenAI(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// Full reports that a request for id will find no room, when that is certain before its body is
// read: the model is loaded and its queues take not one item more. An overloaded server then spends
// next to nothing on what it will refuse. Everything else, an unknown id included, is for Encode to
// decide. retry is when it may come again, 0 where the queues are full by items.
func (h *Host) Full(id string) (retry time.Duration, full bool) {
	l := h.Loaded(id)
	if l == nil {
		return 0, false
	}
	e := l.full()
	if e == nil {
		return 0, false
	}
	return e.RetryAfter, true
}

// Loaded is the model behind an id, or nil where it is not loaded now. It may be unloaded at any
// time: use Acquire to use it.
func (h *Host) Loaded(id string) *Model {
	l, ok := h.loaded.Load(h.view.Load().keys[id])
	if !ok {
		return nil
	}
	return l.(*Model)
}

// AllFull is Full for a request whose model is not known yet: no loaded model has room.
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

// QueueLimit is how many items a queue takes.
func (h *Host) QueueLimit() int { return h.opt.MaxQueueItems }

// QueueWait is how long a request may be predicted to wait in a queue; 0: as long as there is room.
func (h *Host) QueueWait() time.Duration { return h.opt.Batch.MaxBacklog }
