package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
)

// OutputBytes returns the most bytes of each output, in order, of a program for want. All are in
// float32. An output of a batch with several texts counts at most most bytes.
func (m *Model) OutputBytes(want Want, most int64) (sizes []int64) {
	c := m.caps
	add := func(bytes, count, ofOne int64) { sizes = append(sizes, min(bytes*count, max(most, bytes*ofOne))) }
	row := func(columns int) { // of a text
		add((engine.F32.RowBytes(int64(columns))+15)&^15, min(c.MaxSeqs, c.MaxTokens), 1)
	}
	tokens := func(columns int) { add(engine.F32.RowBytes(int64(columns)), c.MaxTokens, c.MaxLen) }
	sparse := func(columns int) { add(engine.SparseBytes(columns, engine.F32), min(c.MaxSeqs, c.MaxTokens), 1) }
	for _, out := range want.Outputs() {
		switch out {
		case OutDense:
			row(m.Dim)
		case OutSparse:
			sparse(m.Vocab)
		case OutTokenWeights:
			tokens(1)
		case OutMulti:
			tokens(m.TokenDim)
		case OutMaxSim:
			row(1)
		case OutLogits:
			row(len(m.Labels))
		case OutTokenLogits:
			tokens(len(m.Labels))
		case OutMuvera:
			row(want.Muvera.Dims(m.TokenDim))
		case OutSMVE:
			sparse(want.SMVE.Room(int(c.MaxLen)))
		}
	}
	return sizes
}
