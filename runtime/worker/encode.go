package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

const (
	// chunkTexts is how many texts are tokenised and queued together; a request is worked through in chunks, so that
	// tokenising overlaps running and 5,000 texts in one request neither fill the queue nor wait for each other.
	chunkTexts = 128
	// chunksAhead bounds the chunks of one request that are queued or running.
	chunksAhead = 4
)

// Encode answers one request. ctx bounds waiting and queueing: when it ends, queued items are dropped and the cause is
// returned. Errors are *errs.Error, except those of ctx.
func (w *Worker) Encode(ctx context.Context, r *Request) (*Result, error) {
	start := time.Now()
	p, err := w.plan(r)
	if err != nil {
		return nil, err
	}
	ref, err := w.acquire(ctx, p.model)
	if err != nil {
		return nil, err
	}
	defer ref.Release()
	run, err := newJob(ctx, w, ref.Model(), p, r)
	if err != nil {
		return nil, err
	}
	run.timings.Preprocess = time.Since(start)
	if err := run.work(); err != nil {
		return nil, w.translate(err, p.model, run)
	}
	run.timings.Total = time.Since(start)
	run.queue.RequestDone(run.timings.Total)
	return &Result{Model: p.model, Rows: run.rows, Type: p.form.element, Dims: run.dims, Tokens: run.tokens,
		Timings: run.timings}, nil
}

// job is one request on its way through a loaded model. Owned by one goroutine.
type job struct {
	ctx     context.Context
	model   *model
	queue   *batch.Queue
	plan    *plan
	req     *Request
	spec    batch.Spec
	dims    int
	limit   int // tokens of one text
	rows    [][]byte
	tokens  int
	timings Timings

	pending []chunk
	ran     bool
	ranFrom time.Time
}

// chunk is a run of texts that was queued.
type chunk struct {
	group *batch.Group
	first int
	at    time.Time
}

func newJob(ctx context.Context, w *Worker, m *model, p *plan, r *Request) (*job, error) {
	v, err := m.variant(p.options.Pooling)
	if err != nil {
		return nil, w.variantError(err, p)
	}
	dims := m.weights.Dim
	if p.dimensions > 0 {
		if p.dimensions > dims {
			return nil, errs.UnsupportedField("dimensions", fmt.Sprintf(
				"dimensions must be at most %d, the width of model '%s'; got %d", dims, p.model.ID, p.dimensions))
		}
		dims = p.dimensions
	}
	normalize := m.weights.Normalize
	if p.options.Normalize != nil {
		normalize = *p.options.Normalize
	}
	limit := m.limit(p.model)
	if n := p.options.MaxSeqLength; n > 0 {
		limit = min(limit, n)
	}
	limit = max(limit, m.tokenizer.CountSpecial(false))
	n := max(len(r.Texts), len(r.Tokens))
	return &job{ctx: ctx, model: m, queue: v.queue, plan: p, req: r, dims: dims, limit: limit, rows: make([][]byte, n),
		spec: batch.Spec{DType: int32(p.form.device), Dims: int32(dims), Normalize: normalize || p.dimensions > 0,
			Bytes: p.form.bytes(dims)}}, nil
}

func (j *job) work() error {
	for first := 0; first < len(j.rows); first += chunkTexts {
		if err := j.submit(first, min(first+chunkTexts, len(j.rows))); err != nil {
			j.abandon(err)
			return err
		}
		if len(j.pending) == chunksAhead {
			if err := j.collect(); err != nil {
				j.abandon(err)
				return err
			}
		}
	}
	for len(j.pending) > 0 {
		if err := j.collect(); err != nil {
			j.abandon(err)
			return err
		}
	}
	return nil
}

// submit tokenises texts [first, end) and queues them. The first chunk is offered: a full queue refuses the request. Later
// ones wait for room.
func (j *job) submit(first, end int) error {
	if first == 0 && !j.queue.Room(end-first) {
		return batch.ErrFull
	}
	items, err := j.items(first, end)
	if err != nil {
		return err
	}
	c := chunk{group: batch.NewGroup(j.ctx, len(items)), first: first, at: time.Now()}
	if err := j.queue.Submit(j.ctx, c.group, items, first > 0); err != nil {
		return err
	}
	j.pending = append(j.pending, c)
	return nil
}

func (j *job) items(first, end int) ([]batch.Item, error) {
	items := make([]batch.Item, end-first)
	if j.req.Tokens != nil {
		for i := range items {
			ids, err := j.checkIDs(first + i)
			if err != nil {
				return nil, err
			}
			items[i] = batch.Item{IDs: ids, Spec: j.spec, Index: i}
			j.tokens += len(ids)
		}
		return items, nil
	}
	start := time.Now()
	texts := make([]string, len(items))
	for i := range texts {
		texts[i] = j.format(j.req.Texts[first+i])
	}
	// The ids stay alive as long as the items do, so each chunk has a batch of its own.
	var b tokenizer.Batch
	if err := j.model.tokenizer.EncodeParallel(j.ctx, &b, texts, tokenizer.Options{MaxTokens: j.limit}); err != nil {
		return nil, j.textError(err, first)
	}
	for i := range items {
		if b.Truncated[i] && j.plan.options.OverflowPolicy == "error" {
			return nil, errs.TooLong(fmt.Sprintf("items[%d]", first+i), fmt.Sprintf(
				"Field 'items[%d]' is longer than %d tokens, the limit of model '%s', and overflow_policy is 'error'",
				first+i, j.limit, j.plan.model.ID))
		}
		items[i] = batch.Item{IDs: b.Text(i), Spec: j.spec, Index: i}
	}
	j.tokens += len(b.IDs)
	j.timings.Tokenize += time.Since(start)
	return items, nil
}

// format applies templates and instructions. A model without templates may bring prompts of its own, by the names that
// sentence-transformers uses.
func (j *job) format(text string) string {
	o, w := j.plan.options, j.model.weights
	instructed := j.req.Instruction != nil || o.Instruction != nil || j.plan.query && o.DefaultInstruction != nil
	if o.QueryTemplate == nil && o.DocTemplate == nil && !instructed {
		name := "document"
		if j.plan.query {
			name = "query"
		}
		prompt, ok := w.Prompts[name]
		if !ok {
			prompt = w.Prompts[w.DefaultPrompt]
		}
		text = prompt + text
	}
	text = o.FormatText(text, j.plan.query, j.req.Instruction)
	if w.LowerCase {
		text = strings.ToLower(text)
	}
	return text
}

// checkIDs validates token ids that a client sent; longer lists are cut as texts are.
func (j *job) checkIDs(i int) ([]int32, error) {
	ids := j.req.Tokens[i]
	vocab := int32(j.model.vocab)
	if len(ids) == 0 {
		return nil, errs.Invalidf("input", "input %d has no token ids; it needs at least one", i)
	}
	for _, id := range ids {
		if id < 0 || id >= vocab {
			return nil, errs.Invalidf("input", "token id %d of input %d is outside the model's vocabulary of %d", id, i, vocab)
		}
	}
	return ids[:min(len(ids), j.limit)], nil
}

// textError turns a tokenizer's complaint about one text into the client's words.
func (j *job) textError(err error, first int) error {
	var te *tokenizer.TextError
	if errors.As(err, &te) && errors.Is(err, tokenizer.ErrTooLong) {
		return errs.TooLong(fmt.Sprintf("items[%d]", first+te.Index),
			fmt.Sprintf("Field 'items[%d]': %v", first+te.Index, te.Err))
	}
	return err
}

// collect waits for the oldest chunk and puts its rows in place.
func (j *job) collect() error {
	c := j.pending[0]
	rows, err := c.group.Wait()
	if err != nil {
		return err
	}
	j.pending = j.pending[1:]
	copy(j.rows[c.first:], rows)
	wait, run := c.group.Times(c.at)
	if !j.ran {
		j.ran, j.ranFrom = true, c.at.Add(wait)
		j.timings.BatchWait = wait
	}
	j.timings.Inference = max(j.timings.Inference, c.at.Add(wait+run).Sub(j.ranFrom))
	return nil
}

// abandon drops what is still queued.
func (j *job) abandon(err error) {
	for _, c := range j.pending {
		c.group.Fail(err)
	}
}

// variantError says why a model cannot be pooled as a request wishes.
func (w *Worker) variantError(err error, p *plan) error {
	switch {
	case w.fatal(err):
		return errs.DeviceLost(err)
	case errors.Is(err, engine.ErrNoMemory):
		return errs.OutOfMemory("Encoding", err)
	case errors.Is(err, engine.ErrUnsupported):
		e := errs.Invalidf("options.pooling", "pooling '%s' is not available for model '%s'", p.options.Pooling, p.model.ID)
		e.Cause = err
		return e
	}
	return errs.Inference("encoding", err)
}

// translate gives an internal failure its public form.
func (w *Worker) translate(err error, m *catalog.Resolved, j *job) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return err
	case j.ctx.Err() != nil:
		return context.Cause(j.ctx)
	case errors.Is(err, batch.ErrExpired): // the queue saw the deadline pass a moment before the context did
		<-j.ctx.Done()
		return context.Cause(j.ctx)
	case errors.Is(err, batch.ErrFull):
		return errs.FullQueue(j.queue.Stats().Items, len(j.rows), w.opt.MaxQueueItems)
	case errors.Is(err, batch.ErrClosed):
		return errs.Evicted(m.ID)
	case errors.Is(err, engine.ErrDeviceLost):
		return errs.DeviceLost(err)
	case errors.Is(err, engine.ErrNoMemory):
		return errs.OutOfMemory("Inference", err)
	}
	return errs.Inference("encoding", err)
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
