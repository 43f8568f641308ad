package worker

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// ScoreRequest asks how relevant texts are to a query.
type ScoreRequest struct {
	Model       string
	Query       string
	Texts       []string
	Field       string // what the client calls the texts, for errors; "": items
	Instruction *string
	Options     map[string]any // the request's own, laid over the profile's

	TruncateLeft bool // keep the end of what is too long, not its start
}

// ScoreResult holds one score a text, in the order of the request.
type ScoreResult struct {
	Model         *catalog.Resolved
	Scores        []float64 // finite
	Tokens        int       // read by the model
	ContentTokens int       // of them, those that are no special tokens, and the query once
	Timings       Timings
	Ignored       []string // options of the request that are for other operations
}

// Score answers one request; see Encode for ctx and errors.
func (w *Worker) Score(ctx context.Context, r *ScoreRequest) (*ScoreResult, error) {
	start := time.Now()
	p, err := w.planScore(r)
	if err != nil {
		return nil, err
	}
	if err := holdOf(ctx)(int64(len(r.Texts))*scoreBytes, len(r.Texts)); err != nil {
		return nil, err
	}
	work, done, err := w.begin(ctx, p, r.Field)
	if err != nil {
		return nil, err
	}
	defer done()
	s := &scoring{passage: work, req: r, result: ScoreResult{Model: p.model, Ignored: p.ignored, Scores: make([]float64, len(r.Texts))}}
	s.result.Timings.Preprocess = time.Since(start)
	if err := s.run(); err != nil {
		return nil, w.translate(ctx, w.recordError(err, p), p.model, s.queue, len(r.Texts), "scoring")
	}
	res := &s.result
	for _, x := range res.Scores {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, errs.NonFinite(p.model.ID, "scores")
		}
	}
	res.Tokens += s.reader.tokens
	res.ContentTokens = max(0, res.Tokens-s.special)
	res.Timings.Tokenize, res.Timings.Total = s.reader.took, time.Since(start)
	s.queue.RequestDone(res.Timings.Total)
	return res, nil
}

// scoring is a request for scores.
type scoring struct {
	passage
	req     *ScoreRequest
	special int // tokens that are nobody's text
	result  ScoreResult
}

func (s *scoring) run() error {
	switch s.plan.model.Family {
	case catalog.FamilyCrossEncoder:
		return s.pairs()
	case catalog.FamilyColBERT:
		return s.lateInteraction()
	case catalog.FamilyMultiFunction:
		return s.multiFunction()
	}
	return errs.NoScoring(s.plan.model.ID)
}

// job runs a program over the request's texts.
func (s *scoring) job(v *variant, admitted bool, make func(first, end int) ([]batch.Item, error), put func(i int, r *batch.Result) error) error {
	j := job{ctx: s.ctx, queue: v.queue, n: len(s.req.Texts), timings: &s.result.Timings, adapter: s.adapter, admitted: admitted, make: make,
		put: func(first int, results []batch.Result) error {
			for i := range results {
				if err := put(first+i, &results[i]); err != nil {
					return err
				}
			}
			return nil
		}}
	return j.run()
}

// pairs scores with a cross-encoder: query and text in one sequence.
func (s *scoring) pairs() error {
	m := s.model.weights
	if len(m.Labels) != 1 {
		return errs.Invalidf("model", "Model '%s' has %d labels and classifies; a model that scores has one", s.plan.model.ID, len(m.Labels))
	}
	v, err := s.use(arch.Want{Logits: true})
	if err != nil {
		return err
	}
	query := s.req.Query
	if ins := s.plan.instructionText(); ins != "" {
		query = ins + " " + query
	} else if m.DefaultPrompt != "" { // before the first text of a pair, as CrossEncoder has it
		query = m.Prompts[m.DefaultPrompt] + query
	}
	specs := []batch.Spec{values(1)}
	return s.job(v, false, func(first, end int) ([]batch.Item, error) {
		return s.reader.pairItems(repeat(query, end-first), s.req.Texts[first:end], first, specs, &s.special)
	}, func(i int, r *batch.Result) error {
		s.result.Scores[i] = activate(m.Activation, float64(floats(r[0])[0]))
		return nil
	})
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// activate is what becomes of a logit.
func activate(a arch.Activation, x float64) float64 {
	if a == arch.Sigmoid {
		return 1 / (1 + math.Exp(-x))
	}
	return x
}

// pairItems tokenises pairs, number first of the request and on, into items with those results.
func (r *reader) pairItems(a, b []string, first int, specs []batch.Spec, special *int) ([]batch.Item, error) {
	out, err := r.readPairs(a, b, first)
	if err != nil {
		return nil, err
	}
	*special += len(a) * r.model.tokenizer.CountSpecial(true)
	items := make([]batch.Item, len(a))
	from := int32(0)
	for i := range items {
		to := out.Ends[i]
		items[i] = batch.Item{IDs: out.IDs[from:to:to], Specs: specs, Index: i}
		if r.model.weights.TypeVocab > 1 { // else a tokenizer's types are not the model's: transformers leaves them out too
			items[i].TypeIDs = out.TypeIDs[from:to:to]
		}
		from = to
	}
	return items, nil
}

// lateInteraction scores with ColBERT's MaxSim: the query's token vectors first, then every text against them.
func (s *scoring) lateInteraction() error {
	k := s.model.markersOf(s.plan.model)
	query, err := s.encodeQuery(outputs{multi: true})
	if err != nil {
		return err
	}
	v, err := s.use(arch.Want{MaxSim: true})
	if err != nil {
		return err
	}
	q, err := s.queryRows(query.Multi[0], v)
	if err != nil {
		return err
	}
	s.reader.prefix, s.reader.limit = k.before(false), k.limit(s.reader.limit, false, 0)
	specs := []batch.Spec{values(1)}
	return s.job(v, true, func(first, end int) ([]batch.Item, error) {
		b, err := s.reader.read(s.req.Texts[first:end], first)
		if err != nil {
			return nil, err
		}
		items := make([]batch.Item, end-first)
		for i := range items {
			ids, keep, _ := k.mark(b.Text(i), false, s.reader.limit)
			items[i] = batch.Item{IDs: ids, Keep: keep, Query: q, Specs: specs, Index: i}
			s.special += s.model.tokenizer.CountSpecial(false)
		}
		return items, nil
	}, func(i int, r *batch.Result) error {
		s.result.Scores[i] = float64(floats(r[0])[0])
		return nil
	})
}

// queryRows makes the query's token vectors what texts are compared with.
func (s *scoring) queryRows(m Matrix, v *variant) (*batch.Query, error) {
	if most := int(v.programs[0].Caps().MaxQueryRows); m.Rows > most {
		return nil, errs.TooLong("query", fmt.Sprintf("Field 'query' has %d token vectors; late interaction with model '%s' takes at most %d",
			m.Rows, s.plan.model.ID, most))
	}
	return &batch.Query{Rows: floats(m.Data), N: m.Rows}, nil
}

// encodeQuery runs the request's query through the model, as the first part of the request.
func (s *scoring) encodeQuery(out outputs) (*Result, error) {
	p := *s.plan
	p.query, p.outputs, p.form, p.fold, p.dimensions = true, out, outputForms["float32"], nil, 0
	e, err := newEncoding(s.ctx, s.model, &p, &Request{Texts: []string{s.req.Query}})
	if err != nil {
		return nil, err
	}
	e.reader.field, e.adapter = "query", s.adapter
	s.queue = e.variant.queue
	if err := e.run(); err != nil {
		return nil, err
	}
	s.result.Tokens += e.reader.tokens
	s.special += s.model.tokenizer.CountSpecial(false)
	s.result.Timings.BatchWait += e.result.Timings.BatchWait
	s.result.Timings.Inference += e.result.Timings.Inference
	return &e.result, nil
}
