package task

import (
	"maps"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The family of BGE-M3. One pass gives a dense vector, and a weight and a vector per token.
func init() {
	families[catalog.FamilyMultiFunction] = &family{
		task:   arch.BGEM3,
		encode: &vectors{begin: dropFirstToken, sparse: arch.OutTokenWeights},
		score:  scoreModes,
	}
}

// dropFirstToken keeps the vectors of all tokens except [CLS].
func dropFirstToken(e *encoding) {
	if e.outputs.multi {
		e.lay = func(ids []int32) ([]int32, []uint8, int) {
			keep, rows := withoutFirst(len(ids))
			return ids, keep, rows
		}
	}
}

// withoutFirst keeps all rows except the first.
func withoutFirst(n int) (keep []uint8, rows int) {
	keep = make([]uint8, n)
	for i := 1; i < n; i++ {
		keep[i] = 1
	}
	return keep, max(0, n-1)
}

// lexical makes BGE-M3's sparse row: the largest weight of each token id, without special tokens.
func lexical(t *tokenizer.Tokenizer, ids []int32, weights []float32) weighted {
	special := t.Special()
	var row weighted
	for i, id := range ids {
		if id == special.CLS || id == special.SEP || id == special.PAD || id == special.UNK {
			continue
		}
		if w := weights[i]; w > 0 {
			row.columns, row.weights = append(row.columns, id), append(row.weights, w)
		}
	}
	row.byColumn()
	return row
}

// hybridWeights are the weights of BGE-M3's hybrid score, with the reference's values.
var hybridWeights = map[string]float64{"dense": 0.4, "sparse": 0.2, "colbert": 0.4}

// scoreModes scores by dense vectors, token weights, token vectors, or a weighted sum of the three.
// Each text takes one forward pass.
func scoreModes(r *run) error {
	weights := map[string]float64{}
	switch mode := r.options.ScoreMode; mode {
	case "":
		weights["dense"] = 1
	case "hybrid":
		maps.Copy(weights, hybridWeights)
		maps.Copy(weights, r.options.ScoreWeights) // weights that the request leaves out keep their defaults
	default:
		weights[mode] = 1
	}
	uses := func(mode string) bool { return weights[mode] > 0 }
	query, err := r.encodeQuery(outputs{dense: uses("dense"), sparse: uses("sparse"), multi: uses("colbert")})
	if err != nil {
		return err
	}
	var give []arch.Output
	var want arch.Want
	if uses("dense") {
		give, want.Pooling = append(give, arch.OutDense), poolings[r.options.Pooling]
	}
	if uses("sparse") {
		give = append(give, arch.OutTokenWeights)
	}
	if uses("colbert") {
		give = append(give, arch.OutMaxSim)
	}
	want.Give = arch.Give(give...)
	v, err := r.variantFor(want)
	if err != nil {
		return err
	}
	c := comparison{run: r, variant: v, weights: weights,
		sizes: newSizes(v, forms{rows: outputForms["float32"], dims: r.use.Weights().Dim, normalize: true})}
	if uses("dense") {
		c.dense = floats(query.Rows[0])
	}
	if uses("sparse") {
		c.sparse = sparseMap(query.Sparse[0])
	}
	if uses("colbert") {
		if c.rows, err = r.queryRows(query.Multi[0], v); err != nil {
			return err
		}
	}
	c.ids = make([][]int32, len(r.req.Inputs))
	return r.job(v, len(r.req.Inputs), true, c.items, c.put)
}

// comparison holds a query's vectors and compares texts with them.
type comparison struct {
	*run
	variant *model.Variant
	weights map[string]float64
	sizes   sizes
	dense   []float32
	sparse  map[int32]float32
	rows    *batch.Query
	ids     [][]int32 // of each text
}

func (c *comparison) items(first, end int) ([]batch.Item, error) {
	b, err := c.reader.read(c.req.Inputs[first:end], first)
	if err != nil {
		return nil, err
	}
	items, special := make([]batch.Item, end-first), c.use.Tokenizer().CountSpecial(false)
	for i := range items {
		it := batch.Item{Inputs: batch.Inputs{IDs: b.Text(i)}, Query: c.rows, Index: i}
		c.ids[first+i] = it.IDs
		it.Keep, _ = withoutFirst(len(it.IDs))
		it.Specs = c.sizes.of(len(it.IDs), 0)
		items[i] = it
		c.special += special
	}
	return items, nil
}

func (c *comparison) put(i int, r *batch.Result) error {
	score := 0.0
	for k := range c.variant.Outputs {
		x := floats(r[k])
		switch arch.Output(c.variant.Outputs[k].Name) {
		case arch.OutDense:
			dot := 0.0
			for j, v := range x {
				dot += float64(v) * float64(c.dense[j])
			}
			score += c.weights["dense"] * dot
		case arch.OutTokenWeights:
			dot := 0.0
			row := lexical(c.use.Tokenizer(), c.ids[i], x)
			for j, id := range row.columns {
				dot += float64(row.weights[j]) * float64(c.sparse[id])
			}
			score += c.weights["sparse"] * dot
		case arch.OutMaxSim:
			score += c.weights["colbert"] * float64(x[0]) / float64(max(1, c.rows.N))
		}
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
