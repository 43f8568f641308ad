package worker

import (
	"errors"
	"fmt"

	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// This file is about memory: the host's for the CPU, each card's own for GPUs. A model is packed on every card, so what it
// needs is needed on each, and what is unloaded for it comes free on each.

// short reports whether more memory is in use than the operator wants, whoever uses it.
func (w *Worker) short() bool {
	host := true
	for _, d := range w.devices {
		if d.memory == nil {
			continue
		}
		host = false
		free, total, err := d.memory()
		if err == nil && (memory{used: total - free, total: total}).ratio() > w.opt.MemoryThreshold {
			return true
		}
	}
	return host && w.memory().ratio() > w.opt.MemoryThreshold
}

// roomless is a load that a card has too little memory for. It is an engine.ErrNoMemory.
type roomless struct {
	card        string
	what        string // that needs the memory
	need        int64
	free, total int64
	hopeless    bool  // an empty card would not do either
	cause       error // of the engine, or nil when it was not asked
}

func (e *roomless) Error() string {
	s := fmt.Sprintf("out of memory on %s: %s about %d MiB", e.card, e.what, mib(e.need))
	if e.hopeless {
		return s + fmt.Sprintf(" and the card has %d MiB in all; use a smaller model, a lower --max-batch-tokens, --precision fp8 or a larger card",
			mib(e.total))
	}
	return s + fmt.Sprintf(" and %d of %d MiB are free without the models that are not in use; it is tried again when one is "+
		"unloaded or after a pause; to help, use a lower --max-batch-tokens or --precision fp8, or end what else uses the card",
		mib(e.free), mib(e.total))
}

// Is makes it an out-of-memory error also where the engine was not asked.
func (e *roomless) Is(target error) bool { return target == engine.ErrNoMemory }

func (e *roomless) Unwrap() error { return e.cause }

// mib rounds up, so that nothing that is something reads as 0 MiB.
func mib(n int64) int64 { return (max(0, n) + 1<<20 - 1) >> 20 }

// noMemory reports whether an error says that a device has too little memory.
func noMemory(err error) bool { return errors.Is(err, engine.ErrNoMemory) }

// curable reports whether a load that failed may succeed with another model gone.
func curable(err error) bool {
	var r *roomless
	return noMemory(err) && !(errors.As(err, &r) && r.hopeless)
}

// need is what a load takes of each card.
type need struct {
	weights   int64 // bytes that are not on the card yet
	workspace int64 // scratch memory of its largest batch
	whole     int64 // of an empty card
	what      string
}

// makeRoom unloads models that are not in use, the least recently used first, until every card has room. It returns a
// *roomless when that is not enough.
func (w *Worker) makeRoom(n need) error {
	for _, d := range w.devices {
		if d.memory == nil {
			continue
		}
		for {
			free, total, err := d.memory()
			if err != nil {
				return fmt.Errorf("memory of %s: %w", d.name, err)
			}
			if free-w.promised(d, n.workspace) >= n.weights {
				break
			}
			hopeless := n.whole > total
			if hopeless || !w.models.EvictOne() {
				return &roomless{card: d.name, what: n.what, need: n.whole, free: free, total: total, hopeless: hopeless}
			}
		}
	}
	return nil
}

// promised is what the card's free memory must still give: the scratch memory is shared by all models and grows to the
// largest one's need with the first batch that has it.
func (w *Worker) promised(d *device, workspace int64) int64 {
	w.loaded.Range(func(_, l any) bool {
		workspace = max(workspace, l.(*model).workspace)
		return true
	})
	return max(0, workspace-d.runner.Stats().ArenaBytes)
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
func (w *Worker) recovered(model string) func(batch.Recovery) {
	return func(r batch.Recovery) {
		w.opt.Metrics.Recovered(model, r.Evictions, r.Splits, r.Failed > 0)
		w.opt.Log.Warn("too little device memory for a batch", "model", model, "device", w.DeviceName(),
			"models_unloaded", r.Evictions, "times_halved", r.Splits, "items_failed", r.Failed)
	}
}
