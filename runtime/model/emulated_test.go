//go:build native && cuda && emulated

package model

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// These tests run requests on emulated GPUs behind the stand-in for CUDA's driver
// (csrc/cuda/standin), which they share, so none of them is parallel.

func standIn(t *testing.T, command string) string {
	t.Helper()
	answer, err := engine.StandIn(command)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// onCards starts a worker on emulated H100s, with batches that are small enough for the emulator.
// At the end no memory of it may be left on the GPUs.
func onCards(t *testing.T, cards int, change func(*Options), ids ...string) *rig {
	t.Helper()
	standIn(t, "devices "+string(rune('0'+cards)))
	t.Cleanup(func() {
		standIn(t, "reset")
		if left := standIn(t, "allocated"); left != "0 bytes in 0 blocks, pinned 0 bytes in 0 blocks" {
			t.Errorf("still allocated: %s", left)
		}
		standIn(t, "devices 1")
	})
	return start(t, func(o *Options) {
		o.Devices, o.Precision, o.MaxBatchTokens = nil, "auto", 128
		for n := range cards {
			o.Devices = append(o.Devices, engine.Options{Kind: engine.CUDA, Ordinal: n})
		}
		if change != nil {
			change(o)
		}
	}, ids)
}

// shorts returns texts of a few words.
func shorts(n int) []string {
	all := words(4 * n)
	out := all[:0:0]
	for _, text := range all {
		if len(strings.Fields(text)) <= 8 && len(out) < n {
			out = append(out, text)
		}
	}
	return out
}

// cosine returns the smallest cosine over the rows.
func cosine(t *testing.T, a, b [][]float32) float64 {
	t.Helper()
	least := 1.0
	for i := range a {
		least = math.Min(least, golden.Compare(a[i], b[i]).Cosine)
	}
	return least
}

// Two GPUs serve one queue. The vectors equal the CPU's within bf16, and are the same on both
// GPUs and in any batch. Status and metrics show the GPUs.
func TestTwoGPUs(t *testing.T) {
	texts := shorts(24)
	want := start(t, nil, []string{mean}).vectors(mean, texts...)
	r := onCards(t, 2, func(o *Options) { o.Batch.MaxRequests = 2 }, mean)
	if r.DeviceName() != "cuda:0,cuda:1" || r.Precision() != "bf16" || r.GPUType() == "" {
		t.Errorf("device %s, precision %s, type %q", r.DeviceName(), r.Precision(), r.GPUType())
	}
	got := make([][]float32, len(texts))
	var wg sync.WaitGroup
	for i, text := range texts {
		wg.Go(func() { got[i] = r.vectors(mean, text)[0] })
	}
	wg.Wait()
	if c := cosine(t, got, want); !(c > 0.999) {
		t.Errorf("cosine %v with the CPU", c)
	}
	again := r.vectors(mean, texts...)
	for i := range texts {
		for j := range again[i] {
			if math.Float32bits(again[i][j]) != math.Float32bits(got[i][j]) {
				t.Fatalf("text %d has another vector in other company", i)
			}
		}
	}
	for _, d := range r.devices {
		if d.runner.Stats().Batches == 0 {
			t.Errorf("%s ran nothing", d.name)
		}
		used, total := r.metric("sie_device_memory_used_bytes", d.name),
			r.metric("sie_device_memory_total_bytes", d.name)
		if used < float64(r.copy(mean).weights.Bytes()) || total < used ||
			r.metric("sie_model_loaded", d.name) != 1 {
			t.Errorf("%s: %v of %v bytes used", d.name, used, total)
		}
	}
	if gpus := r.GPUs(); len(gpus) != 2 || gpus[1].Device != "cuda:1" || gpus[1].Used <= 0 ||
		r.DeviceName() != "cuda:0,cuda:1" {
		t.Errorf("cards %+v, together %s", gpus, r.DeviceName())
	}
}

// fp8 and fp16 can be chosen by name; New refuses a precision that the GPU lacks.
func TestPrecisionOnAGPU(t *testing.T) {
	texts := shorts(4)
	want := start(t, nil, []string{mean}).vectors(mean, texts...)
	for precision, least := range map[string]float64{"fp8": 0.97, "fp16": 0.9999, "bf16": 0.999} {
		t.Run(precision, func(t *testing.T) {
			r := onCards(t, 1, func(o *Options) { o.Precision = precision }, mean)
			if c := cosine(t, r.vectors(mean, texts...), want); !(c > least) {
				t.Errorf("cosine %v with the CPU", c)
			}
		})
	}
	r := onCards(t, 1, nil, mean)
	o := r.opt
	for _, precision := range []string{"fp32", "int8"} {
		o.Precision = precision
		if _, err := New(o); err == nil ||
			!strings.Contains(err.Error(), precision+" exists on the CPU only") {
			t.Errorf("%s: %v", precision, err)
		}
	}
}

// A load that runs out of memory, at any allocation, unloads the other model and is tried again.
func TestLoadOnAFullGPU(t *testing.T) {
	r := onCards(t, 1, nil, mean, cls)
	r.vectors(mean, "the cat")
	for n, load := range []string{cls, mean, cls} {
		standIn(t, fmt.Sprintf("fail cuMemAlloc_v2 %d 2", 1+10*n))
		r.vectors(load, "the cat")
		other := map[string]string{mean: cls, cls: mean}[load]
		if left := standIn(t, "pending"); r.state(other) != registry.Available ||
			strings.Contains(left, "cuMemAlloc") {
			t.Errorf("the other model is %s after a load without memory; pending %q", r.state(other), left)
		}
	}
}

// A GPU with memory for only one model serves two in turn.
func TestSmallGPU(t *testing.T) {
	r := onCards(t, 1, nil, mean, cls)
	free, total, err := r.devices[0].engine.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Preload(t.Context(), cls); err != nil {
		t.Fatal(err)
	}
	l := r.copy(cls) // it has the larger scratch
	standIn(t, fmt.Sprintf("memory %d", total-free+whole(l.scratch)+l.weights.Bytes()*3/2))
	defer standIn(t, fmt.Sprintf("memory %d", total))
	r.opt.MemoryThreshold = 99 // off: only the GPU's memory is the limit here
	for _, id := range []string{mean, cls, mean} {
		r.vectors(id, shorts(3)...)
	}
	has, now := r.devices[0].runner.Stats(), r.copy(mean)
	if arena, slots := l.scratch.Bytes(); has.ArenaBytes != arena || has.SlotBytes == 0 ||
		has.SlotBytes > slots {
		t.Errorf("the runner has %d and %d bytes; it was to have %d and at most %d",
			has.ArenaBytes, has.SlotBytes, arena, slots)
	}
	if got, want := r.metric("sie_device_memory_used_bytes", "cuda:0"), total-free+now.weights.Bytes()+
		has.ArenaBytes+has.SlotBytes; int64(got) != want {
		t.Errorf("%v bytes are used, %d are known of", got, want)
	}
	if r.loads(mean) != 2 || r.loads(cls) != 2 {
		t.Errorf("%d and %d loads: there is memory for one at a time", r.loads(mean), r.loads(cls))
	}
}

// A batch that the GPU has no memory for unloads the other model and then succeeds.
func TestBatchOnAFullGPU(t *testing.T) {
	r := onCards(t, 1, nil, mean, cls)
	r.vectors(mean, "the cat")
	if err := r.Preload(t.Context(), cls); err != nil {
		t.Fatal(err)
	}
	standIn(t, "fail cuMemAlloc_v2 1 2") // the workspace of cls is larger
	if rows := r.vectors(cls, shorts(3)...); len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
	if left := standIn(t, "pending"); strings.Contains(left, "cuMemAlloc") {
		t.Fatalf("the batch allocated nothing: %s", left)
	}
	if r.state(mean) != registry.Available {
		t.Errorf("mean is %s", r.state(mean))
	}
	r.counted("sie_oom_recoveries_succeeded_total", cls, 1)
}

// Modules after pooling run in float32 on a GPU too: a Dense and a Normalize give 20 columns of
// unit norm.
func TestDenseModuleOnAGPU(t *testing.T) {
	r := onCards(t, 1, nil, prompts)
	for _, row := range r.vectors(prompts, shorts(3)...) {
		norm := 0.0
		for _, x := range row {
			norm += float64(x) * float64(x)
		}
		if len(row) != 20 || math.Abs(norm-1) > 1e-5 {
			t.Errorf("%d columns of norm² %v", len(row), norm)
		}
	}
}

// When a GPU fails in a batch, the client gets a 503 that sends it to another worker, LostC
// closes, and Close frees what it can.
func TestGPUDies(t *testing.T) {
	r := onCards(t, 1, nil, mean, cls)
	r.vectors(mean, "the cat")
	standIn(t, "fail kernel 3 719")
	r.refused(t.Context(), &Request{Model: mean, Texts: shorts(2)}, errs.Draining, 503)
	if !r.Lost() {
		t.Error("the worker does not count as lost")
	}
	r.refused(t.Context(), &Request{Model: mean, Texts: shorts(1)}, errs.Draining, 503)
	e := r.refused(t.Context(), &Request{Model: cls, Texts: shorts(1)}, errs.Draining, 503)
	if !errors.Is(e, engine.ErrDeviceLost) {
		t.Errorf("a load on a lost card: %v", e.Cause)
	}
	if got := r.GPUs(); len(got) != 1 {
		t.Errorf("status of a lost card: %+v", got)
	}
}
