package service

import (
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/task"
)

// outcome copies what headers, the log and metrics need of a result of so many items.
func outcome(res *task.Result, items int) api.Outcome {
	return api.Outcome{
		ModelID:  res.Model.ID,
		Revision: res.Model.ServedRevision(),
		Items:    items,
		Tokens:   res.Tokens,
		Timings:  res.Timings,
		Ignored:  res.Ignored,
	}
}

// encoded puts each item's outputs under its id. It allocates the parts of all items together, so
// that the number of allocations does not grow with the number of items.
func encoded(model string, r *api.EncodeRequest, res *task.Result) *api.EncodeResponse {
	items := make([]api.EncodeItem, len(r.Items))
	dense, sparse, multi := make([]api.Dense, len(res.Rows)), make([]api.Sparse, len(res.Sparse)),
		make([]api.Multivector, len(res.Multi))
	for i := range items {
		it := &items[i]
		it.ID, it.HasID = r.Items[i].ID, r.Items[i].HasID
		if res.Rows != nil {
			dense[i] = api.Dense{Dims: res.Dims, Values: api.Vector(res.Type, res.Rows[i])}
			it.Dense = &dense[i]
		}
		if res.Sparse != nil {
			row := res.Sparse[i]
			sparse[i] = api.Sparse{
				Dims:    res.SparseDims,
				Indices: api.Vector(api.Int32, row.Columns),
				Values:  api.Vector(res.SparseType, row.Values),
			}
			it.Sparse = &sparse[i]
		}
		if res.Multi != nil {
			m := res.Multi[i]
			cols := res.TokenDims
			if m.Rows > 0 {
				cols = len(m.Data) / m.Rows / res.MultiType.Size()
			}
			multi[i] = api.Multivector{
				TokenDims: res.TokenDims, Values: api.Matrix(res.MultiType, m.Rows, cols, m.Data),
			}
			it.Multivector = &multi[i]
		}
	}
	return &api.EncodeResponse{
		Model:   model,
		Items:   items,
		Timing:  res.Timings.Wire(),
		Usage:   &api.Usage{InputTokens: res.Tokens},
		Outcome: outcome(res, len(items)),
	}
}

// scored ranks the scores, which are finite.
func scored(model string, r *api.ScoreRequest, res *task.Result) *api.ScoreResponse {
	out := &api.ScoreResponse{
		Model:    model,
		QueryID:  r.Query.ID,
		HasQuery: r.Query.HasID,
		Scores:   make([]api.Score, len(res.Scores)),
		Usage: &api.Usage{InputTokens: res.Tokens, ContentTokens: res.ContentTokens, HasContent: true,
			QueryTokens: res.QueryTokens, QueryContent: res.QueryContent},
		Outcome: outcome(res, len(res.Scores)),
	}
	order, _ := api.Rank(res.Scores)
	for rank, i := range order {
		out.Scores[rank] = api.Score{
			ItemID: api.ItemID(&r.Items[i], i), Index: i, Score: res.Scores[i], Rank: rank,
		}
	}
	return out
}

func classified(res *task.Result) *api.ClassifyResponse {
	return &api.ClassifyResponse{
		Labels:  res.Labels,
		Scores:  res.Classes,
		Usage:   &api.Usage{InputTokens: res.Tokens},
		Outcome: outcome(res, len(res.Classes)),
	}
}

func extracted(model string, r *api.ExtractRequest, res *task.Result) *api.ExtractResponse {
	out := &api.ExtractResponse{
		Model:   model,
		Items:   make([]api.ExtractItem, len(res.Found)),
		Usage:   &api.Usage{InputTokens: res.Tokens},
		Outcome: outcome(res, len(res.Found)),
	}
	for i, x := range res.Found {
		out.Items[i] = api.ExtractItem{
			ID: api.ItemID(&r.Items[i], i), Entities: x.Entities, Relations: x.Relations,
			Classifications: x.Classes, Data: x.Data, Error: x.Err,
		}
	}
	return out
}
