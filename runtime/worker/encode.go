package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// Encode answers one request. ctx bounds waiting and queueing: when it ends, queued items are dropped and the cause is
// returned. Errors are *errs.Error, except those of ctx.
func (w *Worker) Encode(ctx context.Context, r *Request) (*Result, error) {
	start := time.Now()
	p, err := w.plan(r)
	if err != nil {
		return nil, err
	}
	model, adapter, done, err := w.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer done()
	e, err := newEncoding(ctx, model, p, r)
	if err != nil {
		return nil, w.translate(ctx, w.recordError(err, p), p.model, nil, 0, "encoding")
	}
	e.adapter = adapter
	e.result.Timings.Preprocess = time.Since(start)
	if err := e.run(); err != nil {
		return nil, w.translate(ctx, err, p.model, e.queue(), e.n, "encoding")
	}
	res := &e.result
	res.Tokens, res.Timings.Tokenize, res.Timings.Total = e.reader.tokens, e.reader.took, time.Since(start)
	if e.variant != nil {
		e.variant.queue.RequestDone(res.Timings.Total)
	}
	return res, nil
}

// encoding is a request for vectors on its way through a loaded model. Owned by one goroutine.
type encoding struct {
	ctx     context.Context
	model   *model
	plan    *plan
	req     *Request
	n       int
	reader  *reader
	markers *markers // ColBERT's; nil for others
	variant *variant // nil when no forward pass is needed
	adapter batch.Adapter
	forms   forms
	result  Result

	kept  [][]int32 // ids of each text as the model reads it, where what it gives is read by them
	hold  Hold
	whole int   // bytes of each item's result that were asked for at first
	short []int // texts whose sparse result had too little room
	room  int   // that they need
}

func newEncoding(ctx context.Context, m *model, p *plan, r *Request) (*encoding, error) {
	e := &encoding{ctx: ctx, model: m, plan: p, req: r, n: max(len(r.Texts), len(r.Tokens)), reader: newReader(ctx, m, p, r.Field), hold: holdOf(ctx)}
	e.result.Model, e.result.Ignored = p.model, p.ignored
	if p.model.Family == catalog.FamilyColBERT {
		e.markers = m.markersOf(p.model)
		e.reader.prefix = e.markers.before(p.query)
		e.reader.limit = e.markers.limit(e.reader.limit, p.query, p.options.QueryMaxLength)
	}
	if err := e.prepare(); err != nil {
		return nil, err
	}
	if err := e.hold(int64(e.n)*int64(vectorBytes+e.whole), e.n); err != nil {
		return nil, err
	}
	e.makeRoom()
	if p.outputs.sparse && m.idf != nil && p.query && p.outputs == (outputs{sparse: true}) {
		return e, nil
	}
	want := e.want()
	trims := want.AttendKept && e.markers.trims()
	if trims && want.Folds() {
		return nil, errs.Invalidf("options", "Model '%s' cannot fold queries that are filled up and lose their special tokens; "+
			"set the load-time option skip_special_tokens: false, query_expansion: false or attend_to_expansion_tokens: true", p.model.ID)
	}
	if want.TokenWeights || trims {
		e.kept = make([][]int32, e.n)
	}
	var err error
	e.variant, err = m.variant(want)
	return e, err
}

// want is what the program of the request gives.
func (e *encoding) want() arch.Want {
	p := e.plan
	var folded folding
	if p.fold != nil {
		folded = *p.fold
	}
	want := arch.Want{Dense: p.outputs.dense && folded.muvera == nil, Multi: p.outputs.multi,
		AttendKept: e.markers != nil && p.query && e.markers.masksExpansion()}
	if want.Dense {
		want.Pooling = poolings[p.options.Pooling]
	}
	if p.outputs.sparse && folded.smve == nil {
		want.TokenWeights = p.model.Family == catalog.FamilyMultiFunction
		want.Sparse = !want.TokenWeights
	}
	folded.ask(&want, p.query)
	return want
}

// queue is where the request's items wait, if they do.
func (e *encoding) queue() *batch.Queue {
	if e.variant == nil {
		return nil
	}
	return e.variant.queue
}

func (e *encoding) run() error {
	if e.variant == nil {
		return e.lookUp()
	}
	j := job{ctx: e.ctx, queue: e.variant.queue, n: e.n, timings: &e.result.Timings, adapter: e.adapter, make: e.items, put: e.put}
	if err := j.run(); err != nil {
		return err
	}
	for len(e.short) > 0 { // a second time, with the room that the first one found to be needed
		again := e.short
		e.short = nil
		e.variant.grow(e.room)
		j := job{ctx: e.ctx, queue: e.variant.queue, n: len(again), timings: &e.result.Timings, adapter: e.adapter, admitted: true,
			make: func(first, end int) ([]batch.Item, error) { return e.pick(again[first:end]) },
			put: func(first int, results []batch.Result) error {
				for i := range results {
					if err := e.take(again[first+i], &results[i]); err != nil {
						return err
					}
				}
				return nil
			}}
		if err := j.run(); err != nil {
			return err
		}
	}
	return nil
}

// ids are the token ids of texts [first, end).
func (e *encoding) ids(first, end int) ([][]int32, error) {
	out := make([][]int32, end-first)
	if e.req.Tokens != nil {
		for i := range out {
			var err error
			if out[i], err = e.reader.check(e.req.Tokens[first+i], first+i); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	b, err := e.reader.read(e.req.Texts[first:end], first)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = b.Text(i)
	}
	return out, nil
}

// items makes the items of texts [first, end).
func (e *encoding) items(first, end int) ([]batch.Item, error) {
	ids, err := e.ids(first, end)
	if err != nil {
		return nil, err
	}
	items, more := make([]batch.Item, len(ids)), int64(0)
	for i := range items {
		items[i] = e.item(ids[i], first, i)
		for j := range items[i].Specs {
			more += int64(items[i].Specs[j].Bytes)
		}
		if e.variant.want.TokenWeights {
			more += 8 * int64(len(items[i].IDs)) // a column and a weight of the row that is made of them
		}
		more -= int64(e.whole)
	}
	if more > 0 {
		return items, e.hold(more, end)
	}
	return items, nil
}

// pick makes the items of some texts anew. Their tokens have been counted.
func (e *encoding) pick(numbers []int) ([]batch.Item, error) {
	counted := e.reader.tokens
	defer func() { e.reader.tokens = counted }()
	items := make([]batch.Item, len(numbers))
	for i, n := range numbers {
		one, err := e.items(n, n+1)
		if err != nil {
			return nil, err
		}
		items[i] = one[0]
		items[i].Index = i
	}
	return items, nil
}

// item lays out the tokens of text first+index.
func (e *encoding) item(ids []int32, first, index int) batch.Item {
	it := batch.Item{IDs: ids, Index: index}
	rows := len(ids)
	switch {
	case e.markers != nil:
		it.IDs, it.Keep, rows = e.markers.mark(ids, e.plan.query, e.reader.limit)
	case e.variant.want.Multi: // BGE-M3's
		it.Keep, rows = withoutFirst(len(ids))
	}
	if e.kept != nil {
		e.kept[first+index] = it.IDs
	}
	it.Specs = e.forms.specs(e.variant, len(it.IDs), rows)
	return it
}

// withoutFirst keeps all rows but the first: BGE-M3's token vectors leave [CLS] out.
func withoutFirst(n int) (keep []uint8, rows int) {
	keep = make([]uint8, n)
	for i := 1; i < n; i++ {
		keep[i] = 1
	}
	return keep, max(0, n-1)
}

// put takes the results of texts first, first+1, …
func (e *encoding) put(first int, results []batch.Result) error {
	for i := range results {
		if err := e.take(first+i, &results[i]); err != nil {
			return err
		}
	}
	return nil
}

// recordError says why a model cannot give what a request wants.
func (w *Worker) recordError(err error, p *plan) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return err
	case w.fatal(err):
		return errs.DeviceLost(err)
	case errors.Is(err, engine.ErrNoMemory):
		return errs.OutOfMemory("Encoding", err)
	case errors.Is(err, engine.ErrUnsupported) && p.options.Pooling != "":
		e := errs.Invalidf("options.pooling", "pooling '%s' is not available for model '%s'", p.options.Pooling, p.model.ID)
		e.Cause = err
		return e
	}
	return err
}

// translate gives an internal failure its public form; what is "encoding", "scoring" or "extraction".
func (w *Worker) translate(ctx context.Context, err error, m *catalog.Resolved, q *batch.Queue, items int, what string) error {
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
		return errs.SlowQueue(w.opt.Batch.MaxBacklog, full.RetryAfter)
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

// open pins a plan's model and the adapter it wants, until done is called.
func (w *Worker) open(ctx context.Context, p *plan) (m *model, adapter batch.Adapter, done func(), err error) {
	ref, err := w.acquire(ctx, p.model)
	if err != nil {
		return nil, nil, nil, err
	}
	adapter, drop, err := ref.Model().adapter(p)
	if err != nil {
		ref.Release()
		return nil, nil, nil, err
	}
	return ref.Model(), adapter, func() { drop(); ref.Release() }, nil
}

// acquire pins the loaded model, waiting at most LoadWait for a load.
func (w *Worker) acquire(ctx context.Context, m *catalog.Resolved) (*registry.Ref[*model], error) {
	wait, cancel := context.WithTimeout(ctx, w.opt.LoadWait)
	defer cancel()
	ref, err := w.models.Acquire(wait, w.key(m), w.loader(m))
	var f *registry.Failure
	switch {
	case err == nil:
		return ref, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, registry.ErrLoading):
		return nil, errs.Loading(m.ID)
	case errors.Is(err, registry.ErrClosed):
		return nil, errs.ShuttingDown()
	case errors.As(err, &f) && errors.Is(f.Err, engine.ErrDeviceLost):
		return nil, errs.DeviceLost(f)
	case errors.As(err, &f):
		return nil, errs.LoadFailed(m.ID, errs.LoadFailure{Class: f.Class, Attempts: f.Attempts, Permanent: f.Permanent},
			publicCause(f.Err), f)
	}
	return nil, errs.Internal(err)
}

var errTooManyVariants = fmt.Errorf("worker: a model has more than %d different outputs in use", maxVariants)
