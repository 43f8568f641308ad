package worker

import (
	"context"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// ClassifyRequest asks a model with a classification head for the scores of its labels. Exactly one of Texts and Pairs is
// set.
type ClassifyRequest struct {
	Model     string
	Texts     []string
	Pairs     [][2]string // texts that are read together, as a cross-encoder does
	Field     string      // what the client calls them, for errors; "": items
	RawScores bool        // the head's logits; else their softmax, or the sigmoid of a single one
	Options   map[string]any

	TruncateLeft bool // keep the end of what is too long, not its start
}

// ClassifyResult holds one row of scores per text or pair, in input order; a row is in the order of Labels.
type ClassifyResult struct {
	Labels  []string
	Scores  [][]float64
	Tokens  int
	Timings Timings
}

// Classify answers one request; see Encode for ctx and errors.
func (w *Worker) Classify(ctx context.Context, r *ClassifyRequest) (*ClassifyResult, error) {
	start := time.Now()
	p, err := w.planClassify(r)
	if err != nil {
		return nil, err
	}
	work, done, err := w.begin(ctx, p, r.Field)
	if err != nil {
		return nil, err
	}
	defer done()
	reader := work.reader
	n := max(len(r.Texts), len(r.Pairs))
	if err := holdOf(ctx)(int64(n)*int64(listBytes+entryBytes*len(work.model.weights.Labels)), n); err != nil {
		return nil, err
	}
	res := &ClassifyResult{Labels: work.model.weights.Labels, Scores: make([][]float64, n)}
	v, err := work.use(arch.Want{Logits: true})
	if err != nil {
		return nil, w.translate(ctx, w.recordError(err, p), p.model, nil, n, "extraction")
	}
	j := job{ctx: ctx, queue: v.queue, n: n, timings: &res.Timings, adapter: work.adapter,
		make: func(first, end int) ([]batch.Item, error) { return reader.classified(r, first, end) },
		put: func(first int, results []batch.Result) error {
			for i := range results {
				res.Scores[first+i] = probabilities(wide(floats(results[i][0])), r.RawScores)
			}
			return nil
		}}
	res.Timings.Preprocess = time.Since(start)
	if err := j.run(); err != nil {
		return nil, w.translate(ctx, err, p.model, v.queue, n, "extraction")
	}
	res.Tokens, res.Timings.Tokenize, res.Timings.Total = reader.tokens, reader.took, time.Since(start)
	v.queue.RequestDone(res.Timings.Total)
	return res, nil
}

// planClassify checks a request against the catalog.
func (w *Worker) planClassify(r *ClassifyRequest) (*plan, error) {
	p, err := w.planAny(catalog.OpExtract, r.Model, r.Options, nil)
	if err != nil {
		return nil, err
	}
	if task, ok := tasks[p.model.Family]; !ok || task != arch.Classify {
		return nil, errs.NoExtraction(r.Model)
	}
	p.left = r.TruncateLeft
	return p, nil
}

// classified makes the items of texts or pairs [first, end).
func (r *reader) classified(req *ClassifyRequest, first, end int) ([]batch.Item, error) {
	if req.Pairs == nil {
		return r.textItems(req.Texts[first:end], first)
	}
	a, b := make([]string, end-first), make([]string, end-first)
	for i, pair := range req.Pairs[first:end] {
		a[i], b[i] = pair[0], pair[1]
	}
	special := 0
	return r.pairItems(a, b, first, []batch.Spec{values(len(r.model.weights.Labels))}, &special)
}

// probabilities is what text-embeddings-inference makes of a head's logits.
func probabilities(z []float64, raw bool) []float64 {
	switch {
	case raw:
		return z
	case len(z) == 1:
		return sigmoids(z)
	}
	return softmax(z)
}
