package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// Null makes a Host without a device: its models load without files, and its batches compute
// nothing. Loads, queues, batches and their bounds are those of every Host. Tests and benches of
// what is around the models use it; see internal/nulldev for its answers.
type Null struct {
	LoadTime  time.Duration // of each model
	BatchTime time.Duration // of each batch, in addition to what its texts ask for
}

// Validate returns what is wrong with the times, or nil.
func (n *Null) Validate() error {
	if n.LoadTime < 0 || n.BatchTime < 0 {
		return fmt.Errorf("LoadTime and BatchTime must not be negative; got %v and %v", n.LoadTime, n.BatchTime)
	}
	return nil
}

// nullDevices returns the one device of a Host that has none.
func nullDevices() []*device {
	return []*device{{name: "null", about: engine.Info{
		Kind: engine.CPU, Name: "null device", Compute: []engine.Compute{engine.ComputeF32},
	}}}
}

// nullLoader does the work of loader without files.
func (h *Host) nullLoader(key string, shared sharedWeights) registry.Load[*Model] {
	return registry.Load[*Model]{
		Find:  func(context.Context) (bool, error) { return true, nil },
		Fetch: func(context.Context) error { return nil },
		Pack: func(ctx context.Context) (*Model, error) {
			taken := time.NewTimer(h.opt.Null.LoadTime)
			defer taken.Stop()
			select {
			case <-taken.C:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			l := h.nullModel(key, shared)
			h.opt.Log.Info("model ready", "model", shared.first.ID, "device", h.DeviceName())
			return l, nil
		},
		Drop: func() {},
	}
}

func (h *Host) nullModel(key string, shared sharedWeights) *Model {
	m := shared.first
	or := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	a := &arch.Model{
		Dim:       or(m.Dims[string(catalog.OutputDense)], nulldev.DefaultDims),
		TokenDim:  or(m.Dims[string(catalog.OutputMultivector)], nulldev.DefaultTokenDims),
		Vocab:     or(m.Dims[string(catalog.OutputSparse)], nulldev.DefaultVocab),
		MaxSeqLen: or(shared.maxTokens, nulldev.DefaultMaxTokens),
		Compute:   engine.ComputeF32,
		Labels:    nulldev.Labels,
	}
	o := h.queueOptions(m, or(h.opt.MaxBatchTokens, m.MaxBatchTokens), 0)
	l := &Model{
		host: h, key: key, name: m.ID, weights: a, maxTokens: a.MaxSeqLen, vocab: a.Vocab, options: o,
	}
	l.null = batch.NewQueue(h.slots, nullRunner{h.opt.Null.BatchTime}, o)
	l.variants.Store(&variants{arch.Want{}: &Variant{Queue: l.null}})
	h.loaded.Store(key, l)
	h.seen.Store(m.ID, nil)
	return l
}

// NullQueue returns the queue of a model on the null device, or nil for a model on a real one. Its
// items are made of NullIDs and have no Specs.
func (l *Model) NullQueue() *batch.Queue { return l.null }

// NullIDs fills ids, two or more, with what the null device reads of an item: the fault that its
// text asks for.
func NullIDs(ids []int32, f nulldev.Fault) {
	ids[0], ids[1] = int32(f.Kind), int32(f.Sleep/time.Millisecond)
}

// nullRunner implements batch.Runner for the null device: it computes nothing, and does what the
// texts of a batch ask for.
type nullRunner struct{ batch time.Duration }

// RunPacked implements batch.Runner. A batch that hangs never returns.
func (r nullRunner) RunPacked(_ context.Context, _ int, p *batch.Packed) (batch.Result, error) {
	wait, short := time.Duration(0), false
	for _, at := range p.CuSeqlens[:len(p.CuSeqlens)-1] {
		switch nulldev.Kind(p.IDs[at]) {
		case nulldev.Sleep:
			wait = max(wait, time.Duration(p.IDs[at+1])*time.Millisecond)
		case nulldev.Crash:
			abort()
		case nulldev.OOM:
			short = true
		case nulldev.Hang:
			select {}
		}
	}
	time.Sleep(r.batch + wait)
	if short {
		return batch.Result{}, fmt.Errorf("a text asks for it: %w", engine.ErrNoMemory)
	}
	return batch.Result{}, nil
}

// abort ends the process as a crash of native code does.
func abort() {
	fmt.Fprintln(os.Stderr, "the null device crashes: a text asks for it")
	dieBySignal()
	panic(errors.New("model: the process outlived SIGABRT"))
}
