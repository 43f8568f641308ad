package worker

import (
	"maps"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// The weights of BGE-M3's hybrid score, as the reference has them.
var hybridWeights = map[string]float64{"dense": 0.4, "sparse": 0.2, "colbert": 0.4}

// multiFunction scores with BGE-M3: by its dense vectors, its token weights, its token vectors, or a weighted sum of the
// three, from one forward pass over each text.
func (s *scoring) multiFunction() error {
	weights := map[string]float64{}
	switch mode := s.plan.options.ScoreMode; mode {
	case "":
		weights["dense"] = 1
	case "hybrid":
		maps.Copy(weights, hybridWeights)
		maps.Copy(weights, s.plan.options.ScoreWeights) // the others stay as they are
	default:
		weights[mode] = 1
	}
	uses := func(mode string) bool { return weights[mode] > 0 }
	query, err := s.encodeQuery(outputs{dense: uses("dense"), sparse: uses("sparse"), multi: uses("colbert")})
	if err != nil {
		return err
	}
	want := arch.Want{Dense: uses("dense"), TokenWeights: uses("sparse"), MaxSim: uses("colbert")}
	if want.Dense {
		want.Pooling = poolings[s.plan.options.Pooling]
	}
	v, err := s.use(want)
	if err != nil {
		return err
	}
	c := comparison{scoring: s, variant: v, weights: weights}
	if uses("dense") {
		c.dense = floats(query.Rows[0])
	}
	if uses("sparse") {
		c.sparse = sparseMap(query.Sparse[0])
	}
	if uses("colbert") {
		if c.rows, err = s.queryRows(query.Multi[0], v); err != nil {
			return err
		}
	}
	c.ids = make([][]int32, len(s.req.Texts))
	return s.job(v, true, c.items, c.put)
}

// comparison is a query and how texts are compared with it.
type comparison struct {
	*scoring
	variant *variant
	weights map[string]float64
	dense   []float32
	sparse  map[int32]float32
	rows    *batch.Query
	ids     [][]int32 // of the texts
}

func (c *comparison) items(first, end int) ([]batch.Item, error) {
	b, err := c.reader.read(c.req.Texts[first:end], first)
	if err != nil {
		return nil, err
	}
	f := forms{rows: outputForms["float32"], dims: c.model.weights.Dim, normalize: true}
	items := make([]batch.Item, end-first)
	for i := range items {
		it := batch.Item{IDs: b.Text(i), Query: c.rows, Index: i}
		c.ids[first+i] = it.IDs
		it.Keep, _ = withoutFirst(len(it.IDs))
		if c.variant.want.Dense {
			it.Specs = append(it.Specs, f.row(f.dims))
		}
		if c.variant.want.TokenWeights {
			it.Specs = append(it.Specs, values(len(it.IDs)))
		}
		if c.variant.want.MaxSim {
			it.Specs = append(it.Specs, values(1))
		}
		items[i] = it
		c.special += c.model.tokenizer.CountSpecial(false)
	}
	return items, nil
}

func (c *comparison) put(i int, r *batch.Result) error {
	at, score := 0, 0.0
	next := func() []float32 { at++; return floats(r[at-1]) }
	if c.variant.want.Dense {
		dot := 0.0
		for j, x := range next() {
			dot += float64(x) * float64(c.dense[j])
		}
		score += c.weights["dense"] * dot
	}
	if c.variant.want.TokenWeights {
		dot := 0.0
		row := c.model.lexical(c.ids[i], next())
		for j, id := range row.columns {
			dot += float64(row.weights[j]) * float64(c.sparse[id])
		}
		score += c.weights["sparse"] * dot
	}
	if c.variant.want.MaxSim {
		score += c.weights["colbert"] * float64(next()[0]) / float64(max(1, c.rows.N))
	}
	c.result.Scores[i] = score
	return nil
}

func sparseMap(s Sparse) map[int32]float32 {
	columns, weights := ints(s.Columns), floats(s.Values)
	out := make(map[int32]float32, len(columns))
	for i, c := range columns {
		out[c] = weights[i]
	}
	return out
}
