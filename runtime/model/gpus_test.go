package model

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/runtime/engine"
)

// The names are the driver's; the types are those of the reference server.
func TestGPUTypes(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory int64 // GiB
		want   string
	}{
		{"NVIDIA H100 80GB HBM3", 80, "h100"}, {"NVIDIA H100 PCIe", 80, "h100"}, {"NVIDIA H200", 140, "h200"},
		{"NVIDIA B200", 180, "b200"},
		{"NVIDIA A100-SXM4-80GB", 80, "a100-80gb"}, {"NVIDIA A100-PCIE-40GB", 40, "a100-40gb"},
		{"NVIDIA A10G", 24, "a10g"}, {"NVIDIA A10", 24, "a10"},
		{"NVIDIA L4", 24, "l4"}, {"NVIDIA L40S", 48, "l40s"}, {"Tesla T4", 16, "t4"},
		{"NVIDIA GeForce RTX 3090", 24, "rtx-3090"},
		{"NVIDIA GeForce RTX 4090", 24, "rtx-4090"}, {"NVIDIA GeForce RTX 3090 Ti", 24, "rtx-3090"},
		{"NVIDIA RTX A6000", 48, "unknown"},
		{"NVIDIA GeForce GTX 1080", 8, "unknown"}, {"", 0, "unknown"},
	} {
		if got := gpuType(c.name, c.memory<<30); got != c.want {
			t.Errorf("%q is %q, want %q", c.name, got, c.want)
		}
	}
}

// GPUs and the metrics show a GPU's memory and utilisation.
func TestGPUStatus(t *testing.T) {
	r := start(t, func(o *Options) {
		o.Intercept = func(*engine.Batch) error { time.Sleep(20 * time.Millisecond); return nil }
	}, []string{mean})
	if got := r.GPUs(); got == nil || len(got) != 0 || r.GPUType() != "" {
		t.Errorf("a CPU shows %+v as a GPU, type %q", got, r.GPUType())
	}
	if err := r.Preload(t.Context(), mean); err != nil {
		t.Fatal(err)
	}
	r.usage = usage{}
	d := r.devices[0]
	d.name, d.about.Kind, d.about.Name = "cuda:2", engine.CUDA, "NVIDIA L4"
	asked := 0
	d.memory = func() (int64, int64, error) { asked++; return 10, 100, nil }
	want := GPU{Device: "cuda:2", Name: "NVIDIA L4", Type: "l4", Used: 90, Total: 100, Threshold: 95}
	for range 3 {
		if got := r.GPUs(); len(got) != 1 || got[0] != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		r.usage.at = time.Now().Add(usageWindow) // so that the window does not end during this test
	}
	if asked != 1 || r.GPUType() != "l4" {
		t.Errorf("the GPU was asked %d times within a second; its type is %q", asked, r.GPUType())
	}
	r.usage.at = time.Now().Add(-usageWindow)
	r.encode(&Request{Model: mean, Texts: words(1)})
	if got := r.GPUs()[0].Utilization; got < 1 || got > 100 {
		t.Errorf("%d %% of a second with a batch of 20 ms", got)
	}
	if used, total := r.metric("sie_device_memory_used_bytes", "cuda:2"),
		r.metric("sie_device_memory_total_bytes", "cuda:2"); used != 90 || total != 100 {
		t.Errorf("the gauges say %v of %v", used, total)
	}
	r.opt.GPUType = "h100-mig"
	r.usage = usage{}
	if got := r.GPUs()[0].Type; got != "h100-mig" || r.GPUType() != "h100-mig" {
		t.Errorf("type %q, %q: the operator says otherwise", got, r.GPUType())
	}
	d.memory = func() (int64, int64, error) { return 0, 0, failing(engine.StatusDeviceLost) }
	r.usage, d.about.MemoryTotal = usage{}, 24<<30
	if got := r.GPUs()[0]; got.Total != 24<<30 || got.Used != 0 {
		t.Errorf("a card that does not answer is shown as %+v", got)
	}
	if _, err := r.opt.Metrics.Registry.Gather(); err != nil {
		t.Errorf("metrics of a card that does not answer: %v", err)
	}
}

// A panic while the GPUs are read, which ends its request and not the server, holds up nobody else.
func TestPanicWhileGPUsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &device{memory: func() (int64, int64, error) { return 0, 0, nil }}
		h := &Host{devices: []*device{one}} // without slots
		for range 2 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				h.GPUs()
			}()
		}
	})
}
