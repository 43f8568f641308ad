package model

import (
	"context"
	"errors"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// Use is a reference to a loaded model and perhaps one of its adapters. Neither is unloaded before
// Done.
type Use struct {
	*Model
	Adapter batch.Adapter // the adapter of every item; nil: none

	ref  *registry.Ref[*Model]
	drop func()
}

// Acquire returns a Use of the model of a catalog entry and, if adapter is not nil, of that
// adapter. If the model is not loaded, it waits for the load for at most Options.LoadWait. name is
// the adapter's name in the request, for error messages. Errors are *errs.Error, or ctx's cause.
func (h *Host) Acquire(ctx context.Context, m *catalog.Resolved, adapter *LoRAKey, name string) (Use, error) {
	wait, cancel := context.WithTimeout(ctx, h.opt.LoadWait)
	defer cancel()
	ref, err := h.acquire(ctx, wait, m)
	if err != nil {
		return Use{}, err
	}
	u := Use{Model: ref.Model(), ref: ref}
	if adapter != nil && h.opt.Null == nil {
		if u.Adapter, u.drop, err = u.adapter(*adapter, name, m); err != nil {
			ref.Release()
			return Use{}, err
		}
	}
	return u, nil
}

// Done ends the use; the model and the adapter may then be unloaded. Call it once.
func (u Use) Done() {
	if u.drop != nil {
		u.drop()
	}
	u.ref.Release()
}

// acquire returns a reference to the model, and waits for its load until wait ends, which ends with
// the request's ctx.
func (h *Host) acquire(ctx, wait context.Context, m *catalog.Resolved) (*registry.Ref[*Model], error) {
	ref, err := h.models.Acquire(wait, h.key(m), h.loader(m))
	switch {
	case err == nil:
		return ref, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, loadError(m, err)
}

// loadError returns an error of the registry in its public form.
func loadError(m *catalog.Resolved, err error) *errs.Error {
	var f *registry.Failure
	switch {
	case errors.Is(err, registry.ErrLoading):
		return errs.Loading(m.ID)
	case errors.Is(err, registry.ErrClosed):
		return errs.ShuttingDown()
	case errors.As(err, &f) && errors.Is(f.Err, engine.ErrDeviceLost):
		return errs.DeviceLost(f)
	case errors.As(err, &f):
		return errs.LoadFailed(m.ID,
			errs.LoadFailure{Class: f.Class, Attempts: f.Attempts, Permanent: f.Permanent},
			publicCause(f.Err), f)
	}
	return errs.Internal(err)
}

// Weights returns the model's replica on the first device, for properties that all replicas share.
func (l *Model) Weights() *arch.Model { return l.weights }

// Tokenizer returns the model's tokenizer. It stays open as long as the model is in use.
func (l *Model) Tokenizer() *tokenizer.Tokenizer { return l.tokenizer }

// LabelTokenizer returns the tokenizer of the model's label tower, or nil if it has none. It stays
// open as long as the model is in use.
func (l *Model) LabelTokenizer() *tokenizer.Tokenizer { return l.labels }

// QueryWeights returns the weight of each token id in queries if a SPLADE model has such a table,
// else nil. Read-only.
func (l *Model) QueryWeights() []float32 { return l.idf }
