package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// This file makes room in memory: the host's memory for the CPU, and each GPU's own for GPUs. A
// model is packed on every GPU, so it needs its memory on each GPU, and unloading a model frees
// memory on each.

// short reports whether more memory is in use than MemoryThreshold allows, by all processes
// together.
func (h *Host) short() bool {
	if h.opt.Null != nil {
		return false // its models take no memory
	}
	host := true
	for _, d := range h.devices {
		if d.memory == nil {
			continue
		}
		host = false
		free, total, err := d.memory()
		if err == nil && (memory{used: total - free, total: total}).ratio() > h.opt.MemoryThreshold {
			return true
		}
	}
	return host && h.memory().ratio() > h.opt.MemoryThreshold
}

// host names the machine in error messages.
const host = "this machine"

// shortage is the error of a load that a device has too little memory for. errors.Is matches it to
// engine.ErrNoMemory.
type shortage struct {
	device        string
	what          string // what needs the memory, as the start of a clause: "its weights need"
	need          int64
	free, total   int64
	neverFits     bool  // the memory would not suffice even if the device were empty
	budget        bool  // the memory is Options.MemoryBudget, and total is its size
	overThreshold bool  // there is room, but the use would exceed MemoryThreshold
	cause         error // the engine's error, or nil if the engine was not called
}

func (e *shortage) Error() string {
	s := fmt.Sprintf("out of memory on %s: %s about %d MiB", e.device, e.what, mib(e.need))
	if e.budget {
		return s + fmt.Sprintf(
			" and %d of the %d MiB that --memory-budget gives weights are free; raise it, or pin fewer models",
			e.free>>20, e.total>>20)
	}
	if e.neverFits {
		return s + fmt.Sprintf(
			" and it has %d MiB in all; use a smaller model, a lower --max-batch-tokens, --precision %s or more memory",
			e.total>>20, e.smallestPrecision())
	}
	return s + fmt.Sprintf(
		" and %d of %d MiB are free without the models that are not in use; it is tried again when one is "+
			"unloaded or after a pause; to help, use a lower --max-batch-tokens or --precision %s, or end what else uses that memory",
		e.free>>20, e.total>>20, e.smallestPrecision())
}

// smallestPrecision returns the precision that takes the least memory on that device.
func (e *shortage) smallestPrecision() string {
	if e.device == host {
		return "int8"
	}
	return "fp8"
}

// Is reports whether target is engine.ErrNoMemory, also if the engine was not called.
func (e *shortage) Is(target error) bool { return target == engine.ErrNoMemory }

func (e *shortage) Unwrap() error { return e.cause }

// mib converts n bytes to MiB and rounds up. Needs are rounded up and free memory is rounded down,
// so that a message never shows a need that looks met.
func mib(n int64) int64 { return (max(0, n) + 1<<20 - 1) >> 20 }

// noMemory reports whether err means that a device has too little memory.
func noMemory(err error) bool { return errors.Is(err, engine.ErrNoMemory) }

// unloadingHelps reports whether a failed load may succeed after another model is unloaded.
func unloadingHelps(err error) bool {
	var r *shortage
	return noMemory(err) && !(errors.As(err, &r) && r.neverFits)
}

// need is the memory that a load takes on each device.
type need struct {
	weights int64            // bytes of weights that are not on the device yet
	passing int64            // bytes of host memory that packing takes temporarily
	packed  int64            // bytes of weights that are already on the device
	counted bool             // packed is of a loaded model: the budget counts it already
	scratch engine.Footprint // of the largest batch
	whole   int64            // bytes that the load needs on an empty device
	what    string
	spare   string // weights key of a model that must not be unloaded for the load
}

// makeRoom unloads models, the least recently used first, until every device has room for n. It
// waits for models in use. Where the budget has no room, models first give up what they keep
// (dropKept). If a device or the budget has no room in the end, it returns a *shortage. Host
// memory is also used by other processes, and their use changes. So if the load fits there but
// exceeds MemoryThreshold, makeRoom unloads only models that are not in use, and then lets the load
// go on.
func (h *Host) makeRoom(ctx context.Context, n need) error {
	dropped := false
	for _, d := range h.devices {
		for {
			lack, err := h.shortageOn(d, n)
			if err != nil {
				return err
			}
			if lack == nil {
				break
			}
			if lack.overThreshold {
				if !h.models.EvictOther(n.spare) {
					break
				}
				continue
			}
			if lack.neverFits {
				return lack
			}
			if lack.budget && !dropped {
				if dropped = true; h.dropKept() {
					continue
				}
			}
			evicted, err := h.models.EvictForLoad(ctx, n.spare)
			if err != nil {
				return fmt.Errorf("%s: %w", lack.Error(), err)
			}
			if !evicted { // a model may have been unloaded since shortageOn computed it
				if lack, err = h.shortageOn(d, n); err != nil {
					return err
				} else if lack != nil && !lack.overThreshold {
					return lack
				}
			}
		}
	}
	return nil
}

// shortageOn returns why d has no room for n, or nil if it has room.
func (h *Host) shortageOn(d *device, n need) (*shortage, error) {
	if budget := h.opt.MemoryBudget; budget > 0 {
		used := h.models.Bytes() / int64(len(h.devices))
		if n.counted {
			used -= n.packed
		}
		if used+n.packed+n.weights > budget {
			return &shortage{
				device:    d.name,
				what:      n.what,
				need:      max(n.weights, n.packed),
				free:      max(0, budget-used),
				total:     budget,
				budget:    true,
				neverFits: max(n.weights, n.packed) > budget,
			}, nil
		}
	}
	if d.memory == nil {
		m := h.memory()
		var more, packed, whole int64
		for _, each := range h.devices { // all devices in host memory load at the same time
			if each.memory == nil {
				more += n.weights + n.passing + h.promised(each, n.scratch)
				packed += n.packed
				whole += n.whole + n.passing
			}
		}
		switch {
		case m.total <= 0:
			return nil, nil
		case m.used+more <= m.total:
			if float64(m.used+more) > h.opt.MemoryThreshold*float64(m.total) {
				return &shortage{overThreshold: true}, nil
			}
			return nil, nil
		case whole > m.total:
			return &shortage{device: host, what: n.what, need: whole, total: m.total, neverFits: true}, nil
		}
		return &shortage{
			device: host, what: n.what, need: packed + more, free: packed + m.total - m.used, total: m.total,
		}, nil
	}
	free, total, err := d.memory()
	if err != nil {
		return nil, fmt.Errorf("memory of %s: %w", d.name, err)
	}
	more := n.weights + h.promised(d, n.scratch)
	switch {
	case more <= free:
		return nil, nil
	case n.whole > total:
		return &shortage{device: d.name, what: n.what, need: n.whole, total: total, neverFits: true}, nil
	}
	return &shortage{
		device: d.name, what: n.what, need: n.packed + more, free: n.packed + free, total: total,
	}, nil
}

// scratchOf returns the memory that the largest batch of a model takes in addition to weights, over
// the default outputs and all outputs of its task. Models do not add up: a runner's arena and slots
// are shared, and each part grows to the largest need with the first batch that has it. Other
// programs that requests ask for, such as another pooling or a fold, are added when they are
// recorded.
func scratchOf(a *arch.Model) (engine.Footprint, error) {
	s := footprint(a, a.Own(), a.Program())
	if a.SharesPrefixes(a.Own()) {
		p, err := a.RecordPrefixes(nil)
		if err != nil {
			return s, err
		}
		s = s.With(p.Footprint())
		p.Close()
	}
	if all := a.All(); all != a.Own() {
		p, err := a.Record(all)
		if err != nil {
			return s, err
		}
		defer p.Close()
		s = s.With(footprint(a, all, p))
	}
	return s, nil
}

// footprint returns the memory that the largest batch of a program with the outputs want takes.
func footprint(a *arch.Model, want arch.Want, p *engine.Program) engine.Footprint {
	return p.Footprint(a.OutputBytes(p, want, batch.MaxOutput)...)
}

// largest returns the scratch memory of the model's largest batch over the programs so far.
// Programs for long texts count while requests use them, and for a while after.
func (l *Model) largest() engine.Footprint {
	long := l.long.footprint()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.scratch.With(long)
}

// promised returns the bytes of d's free memory that batches may still take: those of all loaded
// models and of a model with scratch s.
func (h *Host) promised(d *device, s engine.Footprint) int64 {
	h.loaded.Range(func(_, l any) bool {
		s = s.With(l.(*Model).largest())
		return true
	})
	stays, passing := d.runner.Growth(s)
	return stays + passing
}

// explain adds the GPU's free and total memory to an out-of-memory error of packing.
func (d *device) explain(err error, weights int64) error {
	if !noMemory(err) || d.memory == nil {
		return err
	}
	free, total, e := d.memory()
	if e != nil {
		return err
	}
	return &shortage{
		device: d.name, what: "its weights need", need: weights, free: free, total: total, cause: err,
	}
}

// recovered returns a function that counts and logs the recoveries of batches that lacked memory.
func (h *Host) recovered(model string) func(batch.Recovery) {
	return func(r batch.Recovery) {
		h.opt.Metrics.Recovered(model, r.Evictions, r.Splits, r.Failed > 0)
		h.opt.Log.Warn("too little device memory for a batch", "model", model, "device", h.DeviceName(),
			"models_unloaded", r.Evictions, "times_halved", r.Splits, "items_failed", r.Failed)
	}
}
