package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// This file is about memory: the host's for the CPU, each card's own for GPUs. A model is packed on
// every card, so what it needs is needed on each, and what is unloaded for it comes free on each.

// short reports whether more memory is in use than the operator wants, whoever uses it.
func (h *Host) short() bool {
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

// host is the machine in messages.
const host = "this machine"

// roomless is a load that a card has too little memory for. It is an engine.ErrNoMemory.
type roomless struct {
	card        string
	what        string // that needs the memory
	need        int64
	free, total int64
	hopeless    bool  // an empty card would not do either
	budget      bool  // total is the operator's budget for weights
	soft        bool  // there is room, but more is in use than the operator wants
	cause       error // of the engine, or nil when it was not asked
}

func (e *roomless) Error() string {
	s := fmt.Sprintf("out of memory on %s: %s about %d MiB", e.card, e.what, mib(e.need))
	if e.budget {
		return s + fmt.Sprintf(" and %d of the %d MiB that --memory-budget gives weights are free; raise it, or pin fewer models",
			e.free>>20, e.total>>20)
	}
	if e.hopeless {
		return s + fmt.Sprintf(" and it has %d MiB in all; use a smaller model, a lower --max-batch-tokens, --precision %s or more memory",
			e.total>>20, e.narrow())
	}
	return s + fmt.Sprintf(" and %d of %d MiB are free without the models that are not in use; it is tried again when one is "+
		"unloaded or after a pause; to help, use a lower --max-batch-tokens or --precision %s, or end what else uses that memory",
		e.free>>20, e.total>>20, e.narrow())
}

// narrow is the precision that takes the least memory there.
func (e *roomless) narrow() string {
	if e.card == host {
		return "int8"
	}
	return "fp8"
}

// Is makes it an out-of-memory error also where the engine was not asked.
func (e *roomless) Is(target error) bool { return target == engine.ErrNoMemory }

func (e *roomless) Unwrap() error { return e.cause }

// mib rounds a need up; what is there is rounded down, so that a need never reads as if it were
// met.
func mib(n int64) int64 { return (max(0, n) + 1<<20 - 1) >> 20 }

// noMemory reports whether an error says that a device has too little memory.
func noMemory(err error) bool { return errors.Is(err, engine.ErrNoMemory) }

// curable reports whether a load that failed may succeed with another model gone.
func curable(err error) bool {
	var r *roomless
	return noMemory(err) && !(errors.As(err, &r) && r.hopeless)
}

// need is what a load takes of each device.
type need struct {
	weights int64            // bytes that are not on the device yet
	passing int64            // bytes of the host's memory beside them while they are packed
	packed  int64            // bytes of it that are on the device
	scratch engine.Footprint // of its largest batch
	whole   int64            // bytes of an empty device
	what    string
	spare   string // key of a model that is not unloaded for it
}

// makeRoom unloads models, the least recently used first, until every device has room. A card
// without room is a *roomless, as is a budget; models that are in use are waited for. The host's
// memory is not ours alone and its other use comes and goes: there only what is not in use is
// unloaded, and only a model that does not fit beside the rest is refused.
func (h *Host) makeRoom(ctx context.Context, n need) error {
	for _, d := range h.devices {
		for {
			lack, err := h.lack(d, n)
			if err != nil {
				return err
			}
			if lack == nil {
				break
			}
			if lack.soft {
				if !h.models.EvictOther(n.spare) {
					break
				}
				continue
			}
			if lack.hopeless {
				return lack
			}
			evicted, err := h.models.EvictForLoad(ctx, n.spare)
			if err != nil {
				return fmt.Errorf("%s: %w", lack.Error(), err)
			}
			if !evicted { // unless what went was gone between the two looks
				if lack, err = h.lack(d, n); err != nil {
					return err
				} else if lack != nil && !lack.soft {
					return lack
				}
			}
		}
	}
	return nil
}

// lack is what d lacks for n, nil when it has room.
func (h *Host) lack(d *device, n need) (*roomless, error) {
	if budget := h.opt.MemoryBudget; budget > 0 {
		used := h.models.Bytes() / int64(len(h.devices))
		if used+n.packed+n.weights > budget {
			return &roomless{card: d.name, what: n.what, need: max(n.weights, n.packed), free: max(0, budget-used), total: budget,
				budget: true, hopeless: max(n.weights, n.packed) > budget}, nil
		}
	}
	if d.memory == nil {
		m := h.memory()
		var more, packed, whole int64
		for _, each := range h.devices { // all that live in it load at the same time
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
				return &roomless{soft: true}, nil
			}
			return nil, nil
		case whole > m.total:
			return &roomless{card: host, what: n.what, need: whole, total: m.total, hopeless: true}, nil
		}
		return &roomless{card: host, what: n.what, need: packed + more, free: packed + m.total - m.used, total: m.total}, nil
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
		return &roomless{card: d.name, what: n.what, need: n.whole, total: total, hopeless: true}, nil
	}
	return &roomless{card: d.name, what: n.what, need: n.packed + more, free: n.packed + free, total: total}, nil
}

// scratchOf is what batches of a model take, beside weights, that give all its task can. All models
// share it: a runner's arena and slots grow, each part by itself, to the largest need with the
// first batch that has it. What requests ask for besides, another pooling or a fold, is added when
// it is recorded.
func scratchOf(a *arch.Model) (engine.Footprint, error) {
	s := footprint(a, a.Own(), a.Program())
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

// footprint is what batches of a program that gives want take.
func footprint(a *arch.Model, want arch.Want, p *engine.Program) engine.Footprint {
	return p.Footprint(a.OutputBytes(want, batch.MaxOutput)...)
}

// largest is the scratch of the model's largest batch so far.
func (l *Model) largest() engine.Footprint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.scratch
}

// promised is what the device's free memory must still give to batches, those of a model with
// scratch s included.
func (h *Host) promised(d *device, s engine.Footprint) int64 {
	h.loaded.Range(func(_, l any) bool {
		s = s.With(l.(*Model).largest())
		return true
	})
	stays, passing := d.runner.Growth(s)
	return stays + passing
}

// explain says to an out-of-memory error of packing what the card has.
func (d *device) explain(err error, weights int64) error {
	if !noMemory(err) || d.memory == nil {
		return err
	}
	free, total, e := d.memory()
	if e != nil {
		return err
	}
	return &roomless{card: d.name, what: "its weights need", need: weights, free: free, total: total, cause: err}
}

// recovered notes what became of a batch that found too little memory.
func (h *Host) recovered(model string) func(batch.Recovery) {
	return func(r batch.Recovery) {
		h.opt.Metrics.Recovered(model, r.Evictions, r.Splits, r.Failed > 0)
		h.opt.Log.Warn("too little device memory for a batch", "model", model, "device", h.DeviceName(),
			"models_unloaded", r.Evictions, "times_halved", r.Splits, "items_failed", r.Failed)
	}
}
