package model_test

import (
	"context"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/task"
)

// The tests of this package use it through the layer above.
func init() {
	model.Tasks = task.Tasks()
	model.Ask = func(ctx context.Context, h *model.Host, q *model.Request) (*model.Result, error) {
		m, err := h.Describe(q.Model)
		if err != nil {
			return nil, err
		}
		r := &task.Request{
			Op:          task.Encode,
			Model:       m,
			Inputs:      task.Texts(q.Texts),
			Labels:      q.Labels,
			Options:     q.Options,
			OutputTypes: q.OutputTypes,
			OutputDType: q.OutputDType,
			IsQuery:     q.IsQuery,
		}
		switch {
		case q.Tokens != nil:
			r.Inputs = task.TokenLists(q.Tokens)
		case q.Query != "":
			r.Op, r.Query = task.Score, &api.Item{Text: q.Query, HasText: true}
		case q.Extract:
			r.Op = task.Extract
		}
		p, err := task.Prepare(r)
		if err != nil {
			return nil, err
		}
		res, err := p.Run(ctx, h, func(int64, int) error { return nil })
		if err != nil {
			return nil, err
		}
		out := &model.Result{Rows: res.Rows, Scores: res.Scores, Dims: res.Dims, Tokens: res.Tokens}
		for _, row := range res.Sparse {
			out.Sparse = append(out.Sparse, [2][]byte{row.Columns, row.Values})
		}
		for _, m := range res.Multi {
			out.Multi = append(out.Multi, m.Data)
		}
		for _, x := range res.Found {
			out.Entities, out.Classes, out.Errors = append(out.Entities, x.Entities),
				append(out.Classes, x.Classes), append(out.Errors, x.Err)
		}
		return out, nil
	}
}
