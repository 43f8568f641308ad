package model

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// device is a GPU or the CPU, with the runner that owns it.
type device struct {
	name   string // "cpu", "cuda:0"
	engine *engine.Device
	about  engine.Info
	runner *engine.Runner
	// memory returns the free and total memory of a GPU in bytes; nil for the CPU, which uses the
	// host's memory.
	memory func() (free, total int64, err error)
}

// openDevices opens all devices, or none and returns an error.
func openDevices(options []engine.Options) (devices []*device, err error) {
	defer func() {
		if err != nil {
			closeDevices(devices)
			devices = nil
		}
	}()
	for _, o := range options {
		d := &device{name: deviceName(o)}
		if d.engine, err = engine.Open(o); err != nil {
			return devices, fmt.Errorf("device %s: %w", d.name, err)
		}
		d.runner = engine.NewRunner(d.engine)
		devices = append(devices, d)
		if d.about, err = d.engine.Info(); err != nil {
			return devices, fmt.Errorf("device %s: %w", d.name, err)
		}
		if d.about.Kind == engine.CUDA {
			d.memory = d.engine.Memory
		}
	}
	return devices, nil
}

func closeDevices(devices []*device) {
	for _, d := range devices {
		if d.runner != nil { // the null device has none
			d.runner.Close()
			d.engine.Close()
		}
	}
}

// deviceName returns "cpu" or, for example, "cuda:0", as the reference server writes it.
func deviceName(o engine.Options) string {
	switch o.Kind {
	case engine.CUDA:
		return fmt.Sprintf("cuda:%d", o.Ordinal)
	case 0:
		return engine.CPU.String()
	}
	return o.Kind.String()
}

// DeviceName returns the names of the devices, such as "cpu", "cuda:0" or "cuda:0,cuda:1".
func (h *Host) DeviceName() string {
	names := make([]string, len(h.devices))
	for i, d := range h.devices {
		names[i] = d.name
	}
	return strings.Join(names, ",")
}

// Devices returns the description of each device, read when it was opened.
func (h *Host) Devices() []engine.Info {
	out := make([]engine.Info, len(h.devices))
	for i, d := range h.devices {
		out[i] = d.about
	}
	return out
}

// supports reports whether every device can pack weights for c.
func (h *Host) supports(c engine.Compute) bool { return h.lacking(c) == nil }

// lacking returns the first device that cannot pack weights for c, or nil.
func (h *Host) lacking(c engine.Compute) *device {
	for _, d := range h.devices {
		if !d.about.Supports(c) {
			return d
		}
	}
	return nil
}

// checkPrecision refuses a precision that a device lacks.
func (h *Host) checkPrecision(precision string) error {
	c, ok := engine.ParseCompute(precision)
	if !ok {
		return nil // "auto", or a name that each load refuses
	}
	d := h.lacking(c)
	if d == nil {
		return nil
	}
	onGPU := d.about.Kind == engine.CUDA
	switch {
	case onGPU && (c == engine.ComputeF32 || c == engine.ComputeINT8):
		return fmt.Errorf(
			"precision %s exists on the CPU only; %s (%s) has %s: choose one of them, or --device cpu",
			precision, d.name, d.about.Name, classes(d.about.Compute))
	case !onGPU && (c == engine.ComputeF16 || c == engine.ComputeFP8):
		return fmt.Errorf(
			"precision %s exists on GPUs only; this machine's %s (%s) has %s: choose one of them",
			precision, d.name, d.about.Name, classes(d.about.Compute))
	}
	return fmt.Errorf("precision %s is not available on %s (%s), which has %s: %s",
		precision, d.name, d.about.Name, classes(d.about.Compute), d.about.Why)
}

func classes(list []engine.Compute) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.String()
	}
	return strings.Join(names, ", ")
}

// batchRunner implements batch.Runner for one variant: it runs a batch on a device with the
// variant's program for that device.
type batchRunner struct {
	model   *Model
	variant *Variant
}

// RunPacked implements batch.Runner. Outputs are newly allocated for each batch, because results
// alias them until they are sent.
func (r batchRunner) RunPacked(ctx context.Context, device int, p *batch.Packed) (batch.Result, error) {
	lockorder.AssertNoneHeld("running a batch")
	programs, prefixes, h := r.variant.programs, r.variant.prefixes, r.model.host
	var which, ofPrefixes []int32
	if p.Adapters != nil {
		set, of, done, err := r.variant.adapted(r.model.adapters, p.Adapters)
		if err != nil {
			return batch.Result{}, err
		}
		defer done()
		programs, prefixes, which = set.programs, set.prefixes, of
		if p.Prefixes != nil && p.Prefixes.Adapters != nil {
			ofPrefixes = set.which(p.Prefixes.Adapters)
		}
	}
	b := engine.Batch{
		Program: programs[device], Adapter: which, IDs: p.IDs, TypeIDs: p.TypeIDs, CuSeqlens: p.CuSeqlens,
		Keep: p.Keep, Queries: p.Queries, CuQueries: p.CuQueries, Partner: p.Partner,
		Words:   engine.Places{Cu: p.CuWords, First: p.Words.First, Last: p.Words.Last},
		Markers: engine.Places{Cu: p.CuMarkers, First: p.Markers.First},
		Spans:   engine.Places{Cu: p.CuSpans, First: p.Spans.First, Last: p.Spans.Last},
	}
	if shared := p.Prefixes; shared != nil {
		b.Prefix = &engine.Batch{
			Program: prefixes[device], Adapter: ofPrefixes, IDs: shared.IDs, CuSeqlens: shared.CuSeqlens,
		}
		b.PrefixFirst, b.PrefixRows = shared.First, shared.Tokens
	}
	for o := range p.Outputs {
		out := &p.Outputs[o]
		b.OutBytes[o] = out.Bytes
		if out.Specs[0].Values {
			continue
		}
		b.Items[o] = make([]engine.OutItem, len(out.Specs))
		for i, s := range out.Specs {
			b.Items[o][i] = engine.OutItem{
				DType:     engine.DType(s.DType),
				Dims:      int(s.Dims),
				Normalize: s.Normalize,
				Threshold: s.Threshold,
				Offset:    out.Offsets[i],
			}
		}
	}
	if f := h.opt.Intercept; f != nil {
		if err := f(&b); err != nil {
			return batch.Result{}, err
		}
	}
	if err := h.devices[device].runner.Run(ctx, &b); err != nil {
		return batch.Result{}, err
	}
	p.NonFinite = b.NonFinite
	return b.Out, nil
}

// Fatal reports whether an error of a batch or a load means that a device is lost. If so, it closes
// LostC. The process then ends even if it has other devices: its supervisor knows better which
// devices still work.
func (h *Host) Fatal(err error) bool {
	if !errors.Is(err, engine.ErrDeviceLost) {
		return false
	}
	h.lose.Do(func() { close(h.lost) })
	return true
}
