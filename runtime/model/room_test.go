package model

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// gpuMemory gives the rig's device its own memory of total bytes. The packed weights and the
// runner's memory count as used.
func (r *rig) gpuMemory(total int64) {
	d := r.devices[0]
	d.name = "cuda:0"
	d.memory = func() (int64, int64, error) {
		info, err := d.engine.Info()
		has := d.runner.Stats()
		return total - info.MemoryWeights - has.ArenaBytes - has.SlotBytes, total, err
	}
}

// sizes returns a model's packed bytes, the estimate of them, and the scratch memory of its largest
// batch.
func sizes(t *testing.T, id string) (packed, estimate, scratch int64) {
	t.Helper()
	r := start(t, nil, []string{id})
	r.encode(&Request{Model: id, Texts: words(1)})
	l := r.copy(id)
	size, err := arch.SizeOf(golden.Open(t, dirs[id]).Dir, r.devices[0].engine,
		arch.Options{Task: arch.Embed, Compute: engine.ComputeF32})
	if err != nil {
		t.Fatal(err)
	}
	return l.Bytes(), size.Packed, whole(l.scratch)
}

// whole returns the bytes of a footprint.
func whole(f engine.Footprint) int64 {
	arena, slots := f.Bytes()
	return arena + slots
}

// Models that are not in use are unloaded from a GPU for the weights and the larger one batch of
// another: the least recently used first, and no more than needed.
func TestRoomOnAGPU(t *testing.T) {
	meanBytes, _, scratch := sizes(t, mean)
	clsBytes, _, other := sizes(t, cls)
	scratch = max(scratch, other)
	r := start(t, nil, []string{mean, cls, prompts})
	r.gpuMemory(meanBytes + clsBytes + scratch + 30<<10) // prompts needs more than 30 KiB and less than mean
	// it has the largest arena, which is therefore not replaced later
	r.encode(&Request{Model: cls, Texts: words(1)})
	r.encode(&Request{Model: mean, Texts: words(1)})
	if r.state(mean) != registry.Loaded || r.state(cls) != registry.Loaded {
		t.Fatalf("mean is %s and cls %s, with memory for both", r.state(mean), r.state(cls))
	}
	r.encode(&Request{Model: prompts, Texts: words(1)})
	if r.state(mean) != registry.Loaded || r.state(cls) != registry.Available ||
		r.state(prompts) != registry.Loaded {
		t.Errorf("mean is %s, cls %s, prompts %s: cls was used least recently",
			r.state(mean), r.state(cls), r.state(prompts))
	}
}

// A model is loaded if its weights and the scratch memory of its largest batch fit. If they do not
// fit even on an empty GPU, no model is unloaded for them.
func TestRoomForTheLargestBatch(t *testing.T) {
	packed, estimate, scratch := sizes(t, mean)
	for name, c := range map[string]struct {
		total  int64
		text   string // of the error; "": it fits
		beside bool   // another model is loaded
	}{
		"both fit": {max(estimate, packed) + scratch, "", false},
		"the batch does not fit": {packed + scratch - 1,
			"its weights and its largest batch need about", false},
		"nor do the weights": {estimate - 1, "its weights need about", true},
	} {
		r := start(t, func(o *Options) { o.MemoryThreshold = 99 }, []string{mean, prompts}) // never
		if c.text == "" {
			r.gpuMemory(c.total)
			r.encode(&Request{Model: mean, Texts: words(1)})
			continue
		}
		if c.beside {
			r.encode(&Request{Model: prompts, Texts: words(1)})
		}
		r.gpuMemory(c.total)
		e := r.refused(t.Context(), &Request{Model: mean, Texts: words(1)}, errs.ModelLoadFailed, 502)
		if e.Load.Class != "PLACEMENT" || e.Load.Permanent {
			t.Errorf("%s: %+v, want class PLACEMENT, to be tried again", name, e.Load)
		}
		for _, part := range []string{
			"out of memory on cuda:0", c.text, "and it has", "--max-batch-tokens", "fp8",
		} {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%s: %q does not say %q", name, e.Message, part)
			}
		}
		if info, err := r.devices[0].engine.Info(); err != nil ||
			info.MemoryWeights != r.models.Get(r.key(r.describe(prompts))).Bytes {
			t.Errorf("%s: %d bytes of weights are left behind, %v", name, info.MemoryWeights, err)
		}
		if c.beside && r.state(prompts) != registry.Loaded {
			t.Errorf("%s: the other model is %s", name, r.state(prompts))
		}
	}
}

// On the host a load needs its weights and the peak of packing, for all devices at the same time;
// then its largest batch, while the arena that it replaces may still exist. With one byte too few
// the load is refused, and the error says which need was not met.
func TestRoomOnTheHost(t *testing.T) {
	size, err := arch.SizeOf(golden.Open(t, dirs[mean]).Dir, start(t, nil, []string{mean}).devices[0].engine,
		arch.Options{Task: arch.Embed, Compute: engine.ComputeF32})
	if err != nil || size.Passing < 1<<20 {
		t.Fatal(size, err)
	}
	packed, _, scratch := sizes(t, mean)
	single := start(t, two, []string{mean})
	single.encode(&Request{Model: mean, Texts: words(1)})
	twice := 2 * whole(single.copy(mean).largest()) // each of one thread
	for name, c := range map[string]struct {
		packing bool // the bound applies before anything is packed
		devices int64
		total   int64
		text    string
	}{
		"weights while they are packed": {true, 1, size.Packed + size.Passing,
			"its weights need about"},
		"on two devices":           {true, 2, 2 * (size.Packed + size.Passing), "its weights need about"},
		"the largest batch":        {false, 1, packed + scratch, "its weights and its largest batch need"},
		"the largest batch on two": {false, 2, 2*packed + twice, "its weights and its largest batch need"},
	} {
		for _, lack := range []int64{0, 1} {
			r := start(t, func(o *Options) {
				o.MemoryThreshold = 1 << 20 // never
				if c.devices == 2 {
					two(o)
				}
			}, []string{mean})
			r.memory = func() memory {
				m := r.host(c.total - lack)
				if c.packing != (m.used == 0) {
					m.total = 1 << 40
				}
				return m
			}
			if lack == 0 {
				r.encode(&Request{Model: mean, Texts: words(1)})
				continue
			}
			e := r.refused(t.Context(), &Request{Model: mean, Texts: words(1)}, errs.ModelLoadFailed, 502)
			for _, part := range []string{"out of memory on this machine", c.text,
				fmt.Sprintf("need about %d MiB and it has", mib(c.total))} {
				if e.Load.Class != "PLACEMENT" || !strings.Contains(e.Message, part) {
					t.Errorf("%s: %+v %v does not say %q", name, e.Load, e, part)
				}
			}
		}
	}

	// The arena of mean is replaced by a larger one for cls, while a batch of mean may run in it.
	for _, lack := range []int64{0, 1} {
		other, _, wider := sizes(t, cls)
		r := start(t, func(o *Options) { o.MemoryThreshold = 1 << 20 }, []string{mean, cls})
		r.encode(&Request{Model: mean, Texts: words(1)})
		passing := r.devices[0].runner.Stats().ArenaBytes
		before := r.host(0).used
		r.memory = func() memory {
			m := r.host(packed + other + wider + passing - lack)
			if m.used == before { // cls is not packed yet
				m.total = 1 << 40
			}
			return m
		}
		_, err := r.Encode(t.Context(), &Request{Model: cls, Texts: words(1)})
		if gone := r.state(mean) != registry.Loaded; err != nil || gone != (lack == 1) {
			t.Errorf("%d bytes too few: %v, and mean is %s", lack, err, r.state(mean))
		}
	}
}

// host returns the state of a host memory of total bytes. The memory that the devices hold counts
// as used.
func (r *rig) host(total int64) memory {
	m := memory{total: total}
	for _, d := range r.devices {
		info, err := d.engine.Info()
		if err != nil {
			r.t.Error(err)
		}
		has := d.runner.Stats()
		m.used += info.MemoryWeights + has.ArenaBytes + has.SlotBytes
	}
	return m
}

// A model that stays in use too long is not unloaded: callers of the other model are told to retry,
// and no failure is remembered.
func TestNoRoomBesideAModelInUse(t *testing.T) {
	_, estimate, _ := sizes(t, mean)
	_, beside, scratch := sizes(t, cls) // the largest
	r := start(t, func(o *Options) {
		held(3)(o)
		o.EvictWait = 50 * time.Millisecond
	}, []string{mean, cls})
	r.gpuMemory(max(estimate, beside) + scratch + 8<<10)
	done := make(chan error, 1)
	go func() { // two of three items: they stay in the queue and hold the model
		_, err := r.Encode(t.Context(), &Request{Model: cls, Texts: words(2)})
		done <- err
	}()
	r.queued(cls, 2)
	e := r.refused(t.Context(), &Request{Model: mean, Texts: words(3)}, errs.ModelLoading, 503)
	if e.RetryAfter < time.Second {
		t.Errorf("retry after %s", e.RetryAfter)
	}
	if r.state(mean) != registry.Available || r.state(cls) != registry.Loaded {
		t.Errorf("mean is %s, cls %s", r.state(mean), r.state(cls))
	}
	if _, err := r.Encode(t.Context(), &Request{Model: cls, Texts: words(1)}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.encode(&Request{Model: mean, Texts: words(3)})
	if r.state(cls) != registry.Available {
		t.Errorf("cls is %s", r.state(cls))
	}
}

// An out-of-memory error of the engine while packing is reported with the GPU's memory, and
// another model is unloaded for it. No other error unloads one.
func TestErrorsOfPacking(t *testing.T) {
	d := &device{name: "cuda:1", memory: func() (int64, int64, error) { return 3 << 20, 9 << 20, nil }}
	err := d.explain(fmt.Errorf("model.safetensors: a: %w", failing(engine.StatusNoMemory)), 5<<20-1)
	for _, part := range []string{"cuda:1", "its weights need about 5 MiB", "3 of 9 MiB are free"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if class, permanent := classify(err); class != "OOM" || permanent || !unloadingHelps(err) {
		t.Errorf("class %s, permanent %v, curable %v", class, permanent, unloadingHelps(err))
	}
	if hopeless := (&shortage{device: "cuda:0", neverFits: true}); unloadingHelps(hopeless) ||
		!noMemory(hopeless) {
		t.Error("a model that is too large for the GPU is worth unloading others")
	}
	other := &arch.ModelError{File: "config.json"}
	if d.explain(other, 1) != error(other) || unloadingHelps(other) {
		t.Error("an error that is not about memory is changed")
	}
	planted := failing(engine.StatusNoMemory)
	if (&device{name: "cpu"}).explain(planted, 1) != planted {
		t.Error("a CPU's error is changed")
	}
}

// With GPUs, MemoryThreshold applies to each GPU's memory, not to the host's.
func TestPressureOnAGPU(t *testing.T) {
	r := start(t, nil, []string{mean, cls})
	r.memory = func() memory { t.Error("the host's memory is asked for a GPU"); return memory{} }
	free := int64(8) << 20
	r.devices[0].memory = func() (int64, int64, error) { return free, 200 << 20, nil }
	if !r.short() {
		t.Error("96 % are not short")
	}
	free = 12 << 20
	if r.short() {
		t.Error("94 % are short")
	}
	r.encode(&Request{Model: mean, Texts: words(1)})
	free = 8 << 20
	r.encode(&Request{Model: cls, Texts: words(1)})
	if r.state(mean) != registry.Available {
		t.Errorf("mean is %s: it is not in use and memory is short", r.state(mean))
	}
	r.devices[0].memory = func() (int64, int64, error) { return 0, 0, failing(engine.StatusDeviceLost) }
	if r.short() {
		t.Error("a card that does not answer is short")
	}
}

// A batch without memory unloads the least recently used of the other models that are not in use,
// and runs again. Only metrics and log show it.
func TestBatchUnloadsAnotherModel(t *testing.T) {
	texts := words(6)
	want := start(t, nil, []string{mean}).encode(&Request{Model: mean, Texts: texts})
	var full atomic.Bool
	var runs atomic.Int64
	var r *rig
	r = start(t, func(o *Options) {
		o.Batch.Adaptive.Disabled = true
		o.Intercept = func(*engine.Batch) error {
			if !full.Load() {
				return nil
			}
			runs.Add(1)
			if r.state(cls) == registry.Available { // now there is room
				return nil
			}
			return failing(engine.StatusNoMemory)
		}
	}, []string{mean, cls, prompts})
	for _, id := range []string{cls, prompts, mean} {
		r.encode(&Request{Model: id, Texts: words(2)})
	}
	full.Store(true)
	for i, row := range r.encode(&Request{Model: mean, Texts: texts}) {
		if !bytes.Equal(row, want[i]) {
			t.Errorf("text %d has another vector", i)
		}
	}
	if r.state(cls) != registry.Available || r.state(prompts) != registry.Loaded ||
		r.state(mean) != registry.Loaded {
		t.Errorf("cls is %s, prompts %s, mean %s: only the least recently used had to go",
			r.state(cls), r.state(prompts), r.state(mean))
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs, want one without memory and one with", runs.Load())
	}
	testrig.Until(t, "the recovery is told",
		func() bool { return strings.Contains(r.log.String(), "too little device memory for a batch") })
	for name, want := range map[string]float64{
		"sie_oom_recoveries_attempted_total": 1,
		"sie_oom_recoveries_succeeded_total": 1,
		"sie_oom_evictions_triggered_total":  1,
		"sie_oom_batch_splits_total":         0,
	} {
		if got := r.ofModel(name, mean); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !strings.Contains(r.log.String(), "too little device memory for a batch") {
		t.Error("nothing is logged")
	}
}

// If unloading does not help, the batch is halved. Only a text that cannot run alone gets a 503,
// which says to retry.
func TestBatchWithoutMemory(t *testing.T) {
	bad := []int32{2, 97, 98, 99, 3}
	var full atomic.Bool
	r := start(t, func(o *Options) {
		held(4)(o)
		o.Intercept = func(b *engine.Batch) error {
			for _, id := range b.IDs {
				if full.Load() && id == 98 {
					return failing(engine.StatusNoMemory)
				}
			}
			return nil
		}
	}, []string{mean, cls})
	r.encode(&Request{Model: cls, Texts: words(4)})
	full.Store(true)
	_, failures := r.all(&Request{Model: mean, Texts: words(2)},
		&Request{Model: mean, Tokens: [][]int32{bad}}, &Request{Model: mean, Texts: words(1)})
	if failures[0] != nil || failures[2] != nil {
		t.Errorf("the others get %v and %v", failures[0], failures[2])
	}
	if e := failures[1]; e == nil || e.Code != errs.ResourceExhausted || e.Status != 503 ||
		e.RetryAfter < time.Second {
		t.Errorf("got %v, want a 503 that says when to retry", e)
	}
	if r.state(cls) != registry.Available {
		t.Errorf("cls is %s: it was worth a try", r.state(cls))
	}
	r.counted("sie_oom_terminal_failures_total", mean, 1)
}

// Batches that run out of memory at the same time do not wait for the models of one another.
func TestBatchesWithoutMemoryDoNotWaitInACircle(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	var full atomic.Bool
	r := start(t, func(o *Options) {
		o.Intercept = func(*engine.Batch) error {
			if !full.Load() {
				return nil
			}
			entered <- struct{}{}
			<-release
			return failing(engine.StatusNoMemory)
		}
	}, []string{mean, cls})
	for _, id := range []string{mean, cls} {
		r.encode(&Request{Model: id, Texts: words(1)})
	}
	full.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, id := range []string{mean, cls} {
		go func() {
			_, err := r.Encode(ctx, &Request{Model: id, Texts: words(1)})
			done <- err
		}()
	}
	for range 2 {
		<-entered
	}
	leave() // neither model has a reference now, but each has a batch in flight
	for range 2 {
		<-done
	}
	close(release)
	full.Store(false)
	for _, id := range []string{mean, cls} {
		r.encode(&Request{Model: id, Texts: words(1)})
	}
}

// A load that lacked memory may find that a model was unloaded before it could unload one itself.
func TestRoomThatCameFreeByItself(t *testing.T) {
	r := start(t, nil, []string{mean})
	looks := 0
	r.devices[0].memory = func() (int64, int64, error) {
		if looks++; looks == 2 { // the first is the registry's check
			return 1, 1 << 30, nil
		}
		return 1 << 29, 1 << 30, nil
	}
	r.encode(&Request{Model: mean, Texts: words(1)})
	if looks < 3 {
		t.Errorf("%d looks", looks)
	}
}
