package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
)

// OutputBytes returns the most bytes of each output, in order, of a program p of the model that was
// recorded for want. Elements count as float32. An output of a batch with several texts counts at
// most limit bytes.
func (m *Model) OutputBytes(p *engine.Program, want Want, limit int64) (sizes []int64) {
	c := m.Caps(want.Long)
	for i := range p.Outputs() {
		o := &p.Outputs()[i]
		bytes, count, ofOne := engine.F32.RowBytes(int64(o.Columns)), min(c.MaxSeqs, c.MaxTokens), int64(1)
		switch {
		case o.Of == engine.RowsSpans:
			count, ofOne = batchCandidates, MaxCandidates
		case o.PerToken:
			count, ofOne = c.MaxTokens, c.MaxLen
		case o.Form == engine.FormSparse:
			bytes = engine.SparseBytes(want.SparseRoom(o, int(c.MaxLen)), engine.F32)
		default:
			bytes = (bytes + 15) &^ 15
		}
		sizes = append(sizes, min(bytes*count, max(limit, bytes*ofOne)))
	}
	return sizes
}
