package model

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/engine"
)

// two returns a worker with two devices, which are CPUs here.
func two(o *Options) { o.Devices = []engine.Options{{Threads: 1}, {Threads: 1}} }

// Requests that are spread over two devices get the same vectors as on one device, in order, and no
// text runs twice.
func TestTwoDevices(t *testing.T) {
	texts := words(400)
	want := start(t, nil, []string{mean}).encode(&Request{Model: mean, Texts: texts})
	r := start(t, func(o *Options) {
		two(o)
		o.Batch.MaxRequests, o.MaxBatchTokens = 4, 100
	}, []string{mean})
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			from, to := n*50, (n+1)*50
			res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: texts[from:to]})
			if err != nil {
				t.Error(err)
				return
			}
			for i, row := range res.Rows {
				if !bytes.Equal(row, want[from+i]) {
					t.Errorf("text %d has another vector than on one device", from+i)
				}
			}
		})
	}
	wg.Wait()
	var sequences int64
	for i, d := range r.devices {
		s := d.runner.Stats()
		sequences += s.Sequences
		// the number depends on the scheduler: one device may finish before the other starts
		if s.Batches == 0 {
			t.Errorf("device %d ran no batch", i)
		}
	}
	if sequences != int64(len(texts)) {
		t.Errorf("%d sequences ran for %d texts", sequences, len(texts))
	}
	if l := r.States()[0].Loaded; r.DeviceName() != "cpu,cpu" ||
		l.Bytes != 2*r.copy(mean).replicas[0].Bytes() {
		t.Errorf("%+v on %s: two copies are two devices and twice the memory", l, r.DeviceName())
	}
}

// copy returns the loaded model of an id.
func (r *rig) copy(id string) (l *Model) {
	r.t.Helper()
	r.models.Each(func(key string, m *Model) {
		if m.name == id {
			l = m
		}
	})
	if l == nil {
		r.t.Fatalf("%s is not loaded", id)
	}
	return l
}

// Another pooling is recorded on each device.
func TestPoolingOnTwoDevices(t *testing.T) {
	q := &Request{Model: mean, Texts: words(100), Options: map[string]any{"pooling": "cls"}}
	want := start(t, nil, []string{mean}).encode(q)
	r := start(t, func(o *Options) {
		two(o)
		o.Batch.MaxRequests, o.MaxBatchTokens = 4, 100
	}, []string{mean})
	for i, row := range r.encode(q) {
		if !bytes.Equal(row, want[i]) {
			t.Errorf("text %d has another vector than on one device", i)
		}
	}
	for i, d := range r.devices {
		if d.runner.Stats().Batches == 0 {
			t.Errorf("device %d ran nothing", i)
		}
	}
}

// When one of two devices is lost, its batch fails with an error that sends the client to another
// worker. The other device runs the queued items, and LostC closes.
func TestOneOfTwoDevicesIsLost(t *testing.T) {
	var second *engine.Program
	var lost atomic.Int64 // batches
	met := make(chan struct{})
	r := start(t, func(o *Options) {
		two(o)
		o.Batch.MaxRequests, o.MaxBatchTokens = 1, 1
		o.Intercept = func(b *engine.Batch) error {
			if b.Program == second {
				if lost.Add(1) == 1 {
					close(met)
				}
				return failing(engine.StatusDeviceLost)
			}
			select { // the other device leaves work for this one, however late it starts
			case <-met:
			case <-time.After(2 * time.Minute):
			}
			return nil
		}
	}, []string{mean})
	if err := r.Preload(t.Context(), mean); err != nil {
		t.Fatal(err)
	}
	second = r.copy(mean).replicas[1].Program()
	requests := make([]*Request, 40)
	for i, text := range words(len(requests)) {
		requests[i] = &Request{Model: mean, Texts: []string{text}}
	}
	rows, failures := r.all(requests...)
	failed := 0
	for i, e := range failures {
		switch {
		case e == nil && len(rows[i]) == 1:
		case e != nil && e.Code == errs.Draining && e.Status == 503:
			failed++
		default:
			t.Errorf("request %d: %v", i, e)
		}
	}
	if n := lost.Load(); failed < 1 || failed == len(requests) || n > slotsInFlight {
		t.Errorf("%d requests in %d batches failed: only what was on the lost device may, %d batches",
			failed, n, slotsInFlight)
	}
	if !r.Lost() {
		t.Error("the worker does not count as lost")
	}
}

// A device that is lost while a model is loaded closes LostC too; the error sends the client to
// another worker.
func TestDeviceIsLostDuringALoad(t *testing.T) {
	r := start(t, nil, []string{mean})
	r.devices[0].memory = func() (int64, int64, error) { return 0, 0, failing(engine.StatusDeviceLost) }
	e := r.refused(t.Context(), &Request{Model: mean, Texts: words(1)}, errs.Draining, 503)
	if e.RetryAfter == 0 || !r.Lost() {
		t.Errorf("retry after %v, lost %v", e.RetryAfter, r.Lost())
	}
}

func TestDeviceNames(t *testing.T) {
	for want, o := range map[string]engine.Options{
		"cpu":    {},
		"cuda:0": {Kind: engine.CUDA},
		"cuda:3": {Kind: engine.CUDA, Ordinal: 3},
		"ref":    {Kind: engine.Ref},
	} {
		if got := deviceName(o); got != want {
			t.Errorf("%+v is %s, want %s", o, got, want)
		}
	}
}

// gpu is a device of a worker with the description of a GPU.
func gpu(name string, compute ...engine.Compute) *device {
	return &device{
		name:  "cuda:0",
		about: engine.Info{Kind: engine.CUDA, Name: name, Compute: compute, Why: "sm_80 has no fp8"},
	}
}

// A GPU refuses precisions that it lacks by name, and the error says which exist only on the CPU.
func TestPrecisionOfGPUs(t *testing.T) {
	h100 := gpu("NVIDIA H100", engine.ComputeBF16, engine.ComputeF16, engine.ComputeFP8)
	a100 := gpu("NVIDIA A100", engine.ComputeBF16, engine.ComputeF16)
	a100.name = "cuda:1"
	for _, c := range []struct {
		devices   []*device
		precision string
		parts     []string // of the error; none: accepted
	}{
		{[]*device{h100}, "auto", nil},
		{[]*device{h100}, "fp8", nil},
		{[]*device{h100}, "bf16", nil},
		{[]*device{h100}, "fp16", nil},
		{[]*device{h100, a100}, "fp16", nil},
		{[]*device{h100, a100}, "fp8",
			[]string{"fp8", "cuda:1", "NVIDIA A100", "bf16, fp16", "sm_80 has no fp8"}},
		{[]*device{h100}, "fp32",
			[]string{"fp32", "CPU only", "cuda:0", "NVIDIA H100", "bf16, fp16, fp8", "--device cpu"}},
		{[]*device{h100}, "int8", []string{"int8", "CPU only"}},
	} {
		err := (&Host{devices: c.devices}).checkPrecision(c.precision)
		if (err == nil) != (c.parts == nil) {
			t.Errorf("%s: %v", c.precision, err)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.precision, err, part)
			}
		}
	}
	r := start(t, nil, []string{mean})
	o := r.opt
	o.Precision = "fp8"
	if w, err := New(o); err == nil || !strings.Contains(err.Error(), "fp8") ||
		!strings.Contains(err.Error(), "cpu") {
		t.Errorf("a CPU takes fp8: %v, %v", w, err)
	}
}

// A profile in float32 shares the weights of the others if the device has no float32.
func TestFloat32ProfileOnAGPU(t *testing.T) {
	r := start(t, nil, nil,
		family(t, "test/family", t.TempDir(), "  exact: {extends: default, compute_precision: float32}\n"))
	own, exact := r.describe("test/family"), r.describe("test/family:exact")
	on := func(d *device, precision string) string {
		w := &Host{devices: []*device{d}, opt: Options{Precision: precision, Tasks: Tasks}}
		if w.key(own) != own.WeightsKey+" to embed" {
			t.Errorf("the default profile has key %q", w.key(own))
		}
		c, err := w.compute(exact)
		return fmt.Sprint(w.key(exact) == w.key(own), c, err)
	}
	h100 := gpu("NVIDIA H100", engine.ComputeBF16, engine.ComputeF16, engine.ComputeFP8)
	amx := &device{name: "cpu", about: engine.Info{
		Kind: engine.CPU, ISA: engine.AMX, Compute: []engine.Compute{engine.ComputeF32, engine.ComputeBF16},
	}}
	for _, c := range []struct {
		on        *device
		precision string
		want      string // same key, precision, error
	}{
		{h100, "auto", "true " + engine.Compute(0).String() + " <nil>"},
		{h100, "fp8", "true fp8 <nil>"},
		{amx, "auto", "false fp32 <nil>"},
		{amx, "bf16", "true bf16 <nil>"},
	} {
		if got := on(c.on, c.precision); got != c.want {
			t.Errorf("on %s with --precision %s: %s, want %s", c.on.name, c.precision, got, c.want)
		}
	}
}
