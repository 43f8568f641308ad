package arch

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// The tables of distances of DeBERTa. A table of the checkpoint has a row for each bucket of
// distances. Each block projects its rows as it projects hidden states, and attention multiplies
// queries and keys with the result. Nothing of that depends on a text, so a small program of the
// model's own engine and class computes it when the model is loaded.

// Bounds of the engine's tables, and of max_relative_positions where buckets share rows.
const (
	maxDistanceRows = 8192
	maxReach        = 1 << 20
)

const (
	distanceTable = "encoder.rel_embeddings.weight"
	distanceNorm  = "encoder.LayerNorm"
)

// blockTable describes one of a block's two tables.
type blockTable struct {
	term       string // its name in pos_att_type
	projection string // the linear that makes it, behind the block's name
	column     int64  // of its part in the block's fused projection; −1: it has one of its own
	of         func(*bertBlock) **engine.Weight
}

// distanceTables returns the tables that each block has: those of the terms.
func (c *debertaConfig) distanceTables() (tables []blockTable) {
	byKey := blockTable{"c2p", debertaNames.names.key, c.HiddenSize,
		func(b *bertBlock) **engine.Weight { return &b.posKey }}
	byQuery := blockTable{"p2c", debertaNames.names.query, 0,
		func(b *bertBlock) **engine.Weight { return &b.posQuery }}
	if !c.Shared {
		byKey.projection, byKey.column = "attention.self.pos_key_proj", -1
		byQuery.projection, byQuery.column = "attention.self.pos_query_proj", -1
	}
	if c.byKey {
		tables = append(tables, byKey)
	}
	if c.byQuery {
		tables = append(tables, byQuery)
	}
	return tables
}

// span returns the number of buckets on either side of distance 0.
func (c *debertaConfig) span() int64 {
	if c.Buckets > 0 {
		return c.Buckets
	}
	return c.Reach
}

// bucket returns the bucket of a key that stands distance places before the query. The nearest half
// of the buckets have one distance each, the others ever more, by the logarithm. It is computed in
// float32, as transformers does; at an edge another rounding gives another bucket.
func (c *debertaConfig) bucket(distance int64) int64 {
	half, n := c.Buckets/2, max(distance, -distance)
	if c.Buckets < 1 || n <= half {
		return distance
	}
	log := func(x float32) float32 { return float32(math.Log(float64(x))) }
	far := log(float32(n)/float32(half)) / log(float32(float64(c.Reach-1)/float64(half)))
	n = int64(math.Ceil(float64(float32(far*float32(half-1))))) + half
	if distance < 0 {
		return -n
	}
	return n
}

// row returns the row of the tables for a distance.
func (c *debertaConfig) row(distance int64) int32 {
	return int32(min(max(c.bucket(distance)+c.span(), 0), 2*c.span()-1))
}

// rowsByDistance returns the rows for the distances from −R to R. All farther ones that a text can
// have share the rows of ±R.
func (c *debertaConfig) rowsByDistance() (rows []int32) {
	far := int64(1)
	for far < debertaLongest-1 && (c.row(-far) > 0 || int64(c.row(far)) < 2*c.span()-1) {
		far++
	}
	for distance := -far; distance <= far; distance++ {
		rows = append(rows, c.row(distance))
	}
	return rows
}

// packDistances makes and packs the tables of all blocks, and the rows by distance.
func (d *deberta) packDistances(p *packer) {
	tables := d.of.distanceTables()
	d.terms = len(tables)
	rows := d.of.rowsByDistance()
	d.buckets = p.data(int64(len(rows)), engine.I32, littleEndian(rows))
	q := p.head(p.prefix, p.compute) // what only the making needs
	defer q.close()
	maker := &tableMaker{dev: p.dev, rows: 2 * d.of.span(), columns: d.of.HiddenSize}
	maker.embedding = engine.Embedding{Word: q.table(maker.rows, maker.columns, distanceTable)}
	if maker.embedding.Norm = engine.NoNorm; d.of.normed {
		maker.embedding.Norm, maker.embedding.Eps = engine.LayerNorm, float32(d.of.LayerNormEps)
		maker.embedding.Gamma, maker.embedding.Beta = q.norm(maker.columns, distanceNorm)
	}
	if p.sizing == nil && p.err == nil && q.err == nil {
		maker.runner = engine.NewRunner(p.dev)
		defer maker.runner.Close()
	}
	for i := range d.blocks {
		b := &d.blocks[i]
		for _, t := range tables {
			weight, bias, column := b.qkv, b.qkvBias, t.column
			if column < 0 {
				name := fmt.Sprintf(d.family.block, i) + t.projection
				l := q.layer(maker.columns, maker.columns, name, engine.NoAct)
				weight, bias, column = l.weight, l.bias, 0
			}
			if p.fail(q.err); p.err != nil {
				return
			}
			*t.of(b) = maker.pack(p, weight, bias, column)
		}
	}
}

// tableMaker multiplies the table of distances with projections.
type tableMaker struct {
	dev           *engine.Device
	runner        *engine.Runner // nil: weights are only counted
	embedding     engine.Embedding
	rows, columns int64
}

// pack packs columns from column on of the table behind a linear, [rows, columns].
func (m *tableMaker) pack(p *packer, w, bias *engine.Weight, column int64) *engine.Weight {
	dtype, err := adapterType(m.dev, p.compute)
	if err != nil {
		p.fail(err)
		return nil
	}
	if m.runner == nil {
		return p.data(m.columns, dtype, make([]byte, m.rows*dtype.RowBytes(m.columns)))
	}
	values, err := m.run(w, bias, column)
	if err != nil {
		p.fail(fmt.Errorf("the tables of distances: %w", err))
		return nil
	}
	return p.data(m.columns, dtype, encoded(values, dtype))
}

// run computes the columns from column on of the table behind a linear.
func (m *tableMaker) run(w, bias *engine.Weight, column int64) ([]float32, error) {
	r := m.dev.Record(engine.Caps{MaxTokens: m.rows, MaxSeqs: 1, MaxLen: m.rows})
	y := r.Linear(r.EmbedLayerNorm(m.embedding), w, bias, engine.NoAct, engine.NoValue)
	r.OutputValues(r.Columns(y, column, m.columns))
	program, err := r.End()
	if err != nil {
		return nil, err
	}
	defer program.Close()
	b := engine.Batch{Program: program, CuSeqlens: []int32{0, int32(m.rows)}}
	for row := range m.rows {
		b.IDs = append(b.IDs, int32(row))
	}
	b.OutBytes[0] = 4 * m.rows * m.columns
	if err := m.runner.Run(context.Background(), &b); err != nil {
		return nil, err
	}
	return float32s(b.Out[0]), nil
}

// float32s decodes the values of an output.
func float32s(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}
