package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
)

// Options of a worker. Zero fields take the defaults in brackets.
type Options struct {
	Catalog   *catalog.Catalog // required
	Hub       *hub.Resolver    // required; finds and fetches weights
	Devices   []engine.Options // equal GPUs, or the CPU and how many threads [the CPU]
	Precision string           // auto, fp32, bf16, int8, fp16 or fp8 [auto]
	GPUType   string           // what the GPUs count as [found from their name]

	LoadWait        time.Duration // a cold request waits this long for its model, then gets MODEL_LOADING [2 s]
	MaxBatchTokens  int           // overrides the profiles' max_batch_tokens
	Batch           batch.Options // as documented there
	MaxQueueItems   int           // [2,048]
	MemoryThreshold float64       // share of memory above which unused models are unloaded before a load [0.95]
	Metrics         *obs.Metrics  // required
	Log             *slog.Logger  // [slog.Default()]

	// Intercept, if set, is called before a batch goes to the device; an error fails the batch instead. It is how tests
	// make a device run out of memory or get lost.
	Intercept func(*engine.Batch) error
}

// Worker is one inference process. Its methods are safe for concurrent use.
type Worker struct {
	opt     Options
	catalog *catalog.Catalog
	devices []*device
	slots   *batch.Device // over all devices
	models  *registry.Registry[*model]
	keys    map[string]string // by id: the key of its weights; fixed by New
	copies  map[string]copyOf // by key: fixed by New
	loaded  sync.Map          // by key: the *model, while it is loaded
	memory  func() memory     // of the host
	usage   usage
	lost    chan struct{} // closed when a device failed for good
	lose    sync.Once
}

// copyOf is a set of packed weights as the catalog's entries that share it see it.
type copyOf struct {
	first     *catalog.Resolved // names it, and says how it is batched
	maxTokens int               // of one text, the most that an entry asks for; 0 = as the files say, which an entry wants
}

// key names the packed weights behind m: equal keys share a copy. A profile in float32 has a copy of its own where the
// operator leaves the precision open and the device's best is another.
func (w *Worker) key(m *catalog.Resolved) string {
	key := m.WeightsKey
	if task := tasks[m.Family]; task != arch.Embed {
		key += " to " + task.String()
	}
	if w.inFloat32(m) && w.devices[0].about.DefaultCompute() != engine.ComputeF32 {
		key += " in float32"
	}
	return key
}

// inFloat32 says whether m's profile decides on float32: it is a wish, and no GPU has it.
func (w *Worker) inFloat32(m *catalog.Resolved) bool {
	return w.wishesFloat32(m) && w.supports(engine.ComputeF32)
}

func (w *Worker) wishesFloat32(m *catalog.Resolved) bool {
	return (w.opt.Precision == "" || w.opt.Precision == "auto") && m.Precision == "float32"
}

// name is the id under which a copy appears in metrics and the status.
func (w *Worker) name(key string) string {
	if c, ok := w.copies[key]; ok {
		return c.first.ID
	}
	return ""
}

// slotsInFlight is how many batches a runner takes at a time.
const slotsInFlight = 2

// New opens the devices. No model is loaded yet.
func New(opt Options) (*Worker, error) {
	if opt.LoadWait == 0 {
		opt.LoadWait = 2 * time.Second
	}
	if opt.MaxQueueItems == 0 {
		opt.MaxQueueItems = 2048
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
	w := &Worker{opt: opt, catalog: opt.Catalog, devices: devices, slots: batch.NewDevices(len(devices), slotsInFlight),
		lost: make(chan struct{}), keys: make(map[string]string), copies: make(map[string]copyOf), memory: hostMemory}
	if err := w.checkPrecision(opt.Precision); err != nil {
		closeDevices(devices)
		return nil, err
	}
	var wishes []string
	for _, m := range opt.Catalog.List() {
		if w.wishesFloat32(m) && !w.inFloat32(m) {
			wishes = append(wishes, m.ID)
		}
		c, known := w.copies[w.key(m)]
		switch {
		case !known:
			c = copyOf{first: m, maxTokens: m.MaxSequenceLength}
		case m.MaxSequenceLength == 0 || c.maxTokens == 0:
			c.maxTokens = 0
		default:
			c.maxTokens = max(c.maxTokens, m.MaxSequenceLength)
		}
		w.keys[m.ID], w.copies[w.key(m)] = w.key(m), c
	}
	if len(wishes) > 0 {
		opt.Log.Info("profiles ask for float32, which this device does not have; they run in "+w.Precision(), "models", wishes)
	}
	w.models = registry.New[*model](registry.Options{
		Classify: classify,
		Short:    w.short,
		NoMemory: curable,
		Changed: func(key string, s registry.State) {
			opt.Log.Info("model "+string(s), "weights", key)
			if s == registry.Available {
				for _, d := range w.devices {
					opt.Metrics.Loaded(w.name(key), d.name, 0)
				}
			}
		},
	})
	opt.Metrics.QueueDepth(func(report func(string, int)) {
		w.models.Each(func(key string, m *model) { report(w.name(key), m.queued()) })
	})
	opt.Metrics.DeviceMemory(w.reportMemory)
	return w, nil
}

// Close unloads every model and gives the devices back. No request may be running.
func (w *Worker) Close() {
	w.models.Close()
	closeDevices(w.devices)
}

// Preload loads the model behind id and waits until it is there.
func (w *Worker) Preload(ctx context.Context, id string) error {
	m, err := w.Describe(id)
	if err != nil {
		return err
	}
	if err := m.Usable(); err != nil {
		return err
	}
	ref, err := w.models.Acquire(ctx, w.key(m), func() (*model, error) { return w.load(m) })
	if err != nil {
		return fmt.Errorf("model %s: %w", id, err)
	}
	ref.Release()
	return nil
}

// LostC is closed when a device failed for good: the process should drain and exit.
func (w *Worker) LostC() <-chan struct{} { return w.lost }

// Lost reports whether LostC is closed.
func (w *Worker) Lost() bool {
	select {
	case <-w.lost:
		return true
	default:
		return false
	}
}

// Precision is what models run in, but for a profile in float32 on the CPU and a checkpoint in fp16 on a GPU.
func (w *Worker) Precision() string {
	if c, ok := engine.ParseCompute(w.opt.Precision); ok {
		return c.String()
	}
	return w.devices[0].about.DefaultCompute().String()
}

// Describe returns the catalog's entry for a model id, or the 404 with suggestions.
func (w *Worker) Describe(id string) (*catalog.Resolved, error) {
	m, err := w.catalog.Resolve(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// DescribeOpenAI is Describe for OpenAI-style routes, where "org__name" also names "org/name".
func (w *Worker) DescribeOpenAI(id string) (*catalog.Resolved, error) {
	m, err := w.catalog.ResolveOpenAI(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	return m, nil
}

// Full reports that a request for id will find no room, when that is certain before its body is read: the model is loaded
// and its queues take not one item more. An overloaded server then spends next to nothing on what it refuses. Everything
// else, an unknown id included, is for Encode to decide.
func (w *Worker) Full(id string) bool {
	l, ok := w.loaded.Load(w.keys[id])
	return ok && l.(*model).full()
}

// AllFull is Full for a request whose model is not known yet: no loaded model has room.
func (w *Worker) AllFull() bool {
	full := false
	w.loaded.Range(func(_, l any) bool {
		full = l.(*model).full()
		return full
	})
	return full
}

// QueueLimit is how many items a queue takes.
func (w *Worker) QueueLimit() int { return w.opt.MaxQueueItems }
