package task

import (
	"encoding/binary"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
)

// The family of SPLADE models: one weight per word of the vocabulary. A model that brings a table
// of query token weights answers queries without a forward pass.
func init() {
	families[catalog.FamilySparse] = &family{task: arch.Splade, encode: &vectors{table: hasTable}}
}

// hasTable reports whether a request is only for sparse queries and the model has a table for them.
func hasTable(e *encoding) bool {
	return e.use.QueryWeights() != nil && e.query && e.outputs == (outputs{sparse: true})
}

// lookUp answers a request for sparse queries from the table alone. Each token id of a query counts
// once, and special tokens count too, unless the model's rows have no weights for them.
func (e *encoding) lookUp() error {
	table := e.use.QueryWeights()
	for first := 0; first < e.n; first += chunkTexts {
		end := min(first+chunkTexts, e.n)
		ids, err := e.ids(first, end)
		if err != nil {
			return err
		}
		more := int64(0)
		for i := range ids {
			more += 8 * int64(len(ids[i])) // a column and a weight
		}
		if err := e.hold(more, end); err != nil {
			return err
		}
		for i := range ids {
			var row weighted
			for _, id := range ids[i] {
				if int(id) >= len(table) { // only the model's vocabulary has it, which may be padded
					continue
				}
				if w := table[id]; w > 0 && !slices.Contains(e.dropped, id) {
					row.columns, row.weights = append(row.columns, id), append(row.weights, w)
				}
			}
			row.byColumn()
			e.result.Sparse[first+i] = e.forms.sparseOf(row)
		}
	}
	return nil
}

// dropSpecialTokens keeps weights of special tokens out of the request's sparse rows, where the
// model is published so.
func (e *encoding) dropSpecialTokens() {
	if e.outputs.sparse && e.model.DropsSpecialTokens() {
		s := e.use.Tokenizer().Special()
		e.dropped = []int32{s.CLS, s.SEP, s.PAD, s.UNK, s.MASK}
	}
}

// without returns the row without those columns. A value has width bytes.
func (s Sparse) without(columns []int32, width int) Sparse {
	if len(columns) == 0 {
		return s
	}
	var out Sparse
	for i := range len(s.Columns) / 4 {
		at := s.Columns[4*i : 4*i+4]
		if !slices.Contains(columns, int32(binary.LittleEndian.Uint32(at))) {
			out.Columns = append(out.Columns, at...)
			out.Values = append(out.Values, s.Values[width*i:width*(i+1)]...)
		}
	}
	return out
}
