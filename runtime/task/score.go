package task

import (
	"fmt"
	"math"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/model"
)

// score gives each of the request's inputs a finite score.
func (r *run) score() error {
	r.result.Scores = make([]float64, len(r.req.Inputs))
	r.prepared()
	if err := r.family.score(r); err != nil {
		return err
	}
	for _, x := range r.result.Scores {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return errs.NonFinite(r.model.ID, "scores")
		}
	}
	return nil
}

// queryRows turns the query's token vectors into the rows that texts are compared with.
func (r *run) queryRows(m Matrix, v *model.Variant) (*batch.Query, error) {
	if limit := v.MaxQueryRows(); m.Rows > limit {
		return nil, errs.TooLong("query", fmt.Sprintf(
			"Field 'query' has %d token vectors; late interaction with model '%s' takes at most %d",
			m.Rows, r.model.ID, limit))
	}
	return &batch.Query{Rows: floats(m.Data), N: m.Rows}, nil
}

// encodeQuery runs the request's query through the model, as the first part of the request.
func (r *run) encodeQuery(out outputs) (*Result, error) {
	p, sub := *r.Prepared, *r
	p.req = &Request{Op: Encode, Model: r.model, Name: r.req.Name, Inputs: []api.Item{*r.req.Query}}
	p.query, p.outputs, p.form, p.fold, p.dimensions = true, out, outputForms["float32"], nil, 0
	sub.longer = nil
	defer func() { r.longer = append(r.longer, sub.longer...) }()
	sub.Prepared, sub.reader, sub.result = &p, newReader(r.ctx, r.use.Model, &p, "query"), Result{}
	e, err := newEncoding(&sub)
	if err != nil {
		return nil, err
	}
	r.queue = sub.queue
	if err := e.answer(); err != nil {
		return nil, err
	}
	r.result.Tokens += e.reader.tokens
	special := r.use.Tokenizer().CountSpecial(false)
	r.special += special
	r.result.QueryTokens, r.result.QueryContent = e.reader.tokens, max(0, e.reader.tokens-special)
	r.result.Timings.BatchWait += e.result.Timings.BatchWait
	r.result.Timings.Inference += e.result.Timings.Inference
	return &e.result, nil
}
