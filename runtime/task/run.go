package task

import (
	"context"
	"errors"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/model"
)

// run is a request on its way through a loaded model. Owned by one goroutine.
type run struct {
	*Prepared
	ctx    context.Context
	host   *model.Host
	use    model.Use
	reader *reader
	hold   Hold
	queue  *batch.Queue // of the program that answers; nil if there is none
	result Result

	longer []func() // release what the run holds for long texts

	special int           // Score: tokens that are not of any text
	shared  *batch.Prefix // Score: what the items of the request begin with; nil: not known yet
	again   []int         // the inputs that the items of a second job stand for; nil: all inputs
}

// Run answers the request with a model of h. ctx bounds waiting and queueing: when it ends, queued
// items are dropped and its cause is returned. All other errors are *errs.Error. hold is asked for
// the room of the results. A Prepared may run more than once.
func (p *Prepared) Run(ctx context.Context, h *model.Host, hold Hold) (*Result, error) {
	if p.family.unite != nil {
		return p.family.unite(ctx, p, h, hold)
	}
	if n := len(p.req.Inputs); p.req.Op == Score { // refuse before a model is loaded
		if err := hold(int64(n)*scoreBytes, n); err != nil {
			return nil, err
		}
	}
	use, err := h.Acquire(ctx, p.model, p.lora, p.adapterName())
	if err != nil {
		return nil, err
	}
	defer use.Done()
	return p.with(ctx, h, use, hold)
}

// with answers the request with a model that is in use, as Run does.
func (p *Prepared) with(ctx context.Context, h *model.Host, use model.Use, hold Hold) (*Result, error) {
	r := &run{Prepared: p, ctx: ctx, host: h, use: use, hold: hold,
		result: Result{Model: p.model, Ignored: p.ignored}}
	n := len(p.req.Inputs)
	defer func() {
		for _, release := range r.longer {
			release()
		}
	}()
	var err error
	if use.NullQueue() != nil {
		err = r.null()
	} else {
		r.reader = newReader(ctx, use.Model, p, p.req.Field)
		if p.task != "" {
			_, r.reader.prefix, _ = use.Weights().TaskAdapter(p.task) // Acquire found it
		}
		err = r.operate()
	}
	if err != nil {
		return nil, translate(ctx, h, err, p.model, r.queue, n, p.req.Op.String())
	}
	res := &r.result
	res.Tokens += r.reader.tokens
	if p.req.Op == Score {
		res.ContentTokens = max(0, res.Tokens-r.special)
	}
	res.Timings.Tokenize, res.Timings.Total = r.reader.took, time.Since(p.start)
	if r.queue != nil {
		r.queue.RequestDone(res.Timings.Total)
	}
	return res, nil
}

// operate does what the request asks for.
func (r *run) operate() error {
	switch r.req.Op {
	case Encode:
		return r.encode()
	case Score:
		return r.score()
	case Extract:
		return r.extract()
	default:
		return r.classify()
	}
}

// prepared notes the time when everything before the tokenizer is done.
func (r *run) prepared() { r.result.Timings.Preprocess = time.Since(r.start) }

// variantFor finds the program that gives want, and makes its queue the request's queue.
func (r *run) variantFor(want arch.Want) (*model.Variant, error) {
	v, err := r.use.Variant(want)
	if err != nil {
		return nil, r.recordError(err)
	}
	r.queue = v.Queue
	return v, nil
}

// texts returns the texts of inputs [first, end), which must not be token ids.
func (r *run) texts(first, end int) []string {
	out := make([]string, end-first)
	for i := range out {
		out[i] = r.req.Inputs[first+i].Text
	}
	return out
}

// job runs the program over n items and passes each result to put.
func (r *run) job(v *model.Variant, n int, admitted bool, make func(first, end int) ([]batch.Item, error),
	put func(i int, r *batch.Result) error) error {
	j := job{
		ctx: r.ctx, queue: v.Queue, n: n, maxLen: r.use.Weights().ShortLen,
		long:    func() (*batch.Queue, error) { return r.long(v) },
		timings: &r.result.Timings, adapter: r.use.Adapter, admitted: admitted,
		make: make, bad: r.nonFinite, put: r.eachOf(put)}
	return j.run()
}

// eachOf returns what passes the results of a chunk to put, one after another while the request is
// wanted: what put makes of one may take a second.
func (r *run) eachOf(put func(i int, r *batch.Result) error) func(first int, results []batch.Result) error {
	return func(first int, results []batch.Result) error {
		for i := range results {
			if r.ctx.Err() != nil {
				return context.Cause(r.ctx)
			}
			if err := put(first+i, &results[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// long returns the queue of the texts that are too long for v. Its memory is held until the run
// ends.
func (r *run) long(v *model.Variant) (*batch.Queue, error) {
	long, release, err := r.use.Long(r.ctx, v)
	var lack *model.LongError
	switch {
	case errors.As(err, &lack) && lack.Never:
		return nil, errs.Invalidf(r.reader.field,
			"Model '%s' takes no texts of more than %d tokens here: with one, it needs %d bytes of memory on %s, which has %d; cut the text, or set options.max_seq_length to %d",
			r.model.ID, lack.Tokens, lack.Bytes, lack.Device, lack.Total, lack.Tokens)
	case errors.As(err, &lack):
		return nil, errs.OutOfMemory("Encoding", lack)
	case err != nil:
		return nil, r.recordError(err)
	}
	r.longer = append(r.longer, release)
	return long.Queue, nil
}

// nonFinite refuses item i of a job, for which the model gave NaN or infinity.
func (r *run) nonFinite(i int) error {
	if r.again != nil {
		i = r.again[i]
	}
	return r.reader.refuse(i, errs.NonFiniteItem(r.model.ID, r.reader.location(i)))
}

// recordError returns the error for a program that a model cannot record.
func (r *run) recordError(err error) error {
	switch {
	case r.host.Fatal(err):
		return errs.DeviceLost(err)
	case errors.Is(err, engine.ErrNoMemory):
		return errs.OutOfMemory("Encoding", err)
	case errors.Is(err, engine.ErrUnsupported) && r.options.Pooling != "":
		e := errs.Invalidf("options.pooling", "pooling '%s' is not available for model '%s'",
			r.options.Pooling, r.model.ID)
		e.Cause = err
		return e
	}
	return err
}

// translate turns an internal error into its public form. what is "encoding", "scoring",
// "extraction" or "tokenization".
func translate(
	ctx context.Context, h *model.Host, err error, m *catalog.Resolved, q *batch.Queue, items int,
	what string,
) error {
	var known *errs.Error
	var full *batch.FullError
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, batch.ErrExpired): // the queue saw the deadline pass a moment before the context did
		<-ctx.Done()
		return context.Cause(ctx)
	case errors.As(err, &full) && full.Wait > 0:
		return errs.SlowQueue(h.QueueWait(), full.RetryAfter)
	case errors.As(err, &full):
		return errs.FullQueue(full.Pending, items, full.Limit)
	case errors.Is(err, batch.ErrClosed):
		return errs.Evicted(m.ID)
	case errors.Is(err, engine.ErrDeviceLost):
		return errs.DeviceLost(err)
	case errors.Is(err, engine.ErrNoMemory):
		return errs.OutOfMemory("Inference", err)
	}
	return errs.Inference(what, err)
}
