package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// OutputBytes is what each output of a program that gives want takes of a batch at most, in the order of Want: all in float32, and
// no more than most where the batch has several texts.
func (m *Model) OutputBytes(want Want, most int64) (sizes []int64) {
	c := m.caps
	add := func(bytes, count, ofOne int64) { sizes = append(sizes, min(bytes*count, max(most, bytes*ofOne))) }
	row := func(columns int) { // of a text
		add((engine.F32.RowBytes(int64(columns))+15)&^15, min(c.MaxSeqs, c.MaxTokens), 1)
	}
	tokens := func(columns int) { add(engine.F32.RowBytes(int64(columns)), c.MaxTokens, c.MaxLen) }
	sparse := func(columns int) { add(engine.SparseBytes(columns, engine.F32), min(c.MaxSeqs, c.MaxTokens), 1) }
	if want.Dense {
		row(m.Dim)
	}
	if want.Sparse {
		sparse(m.Vocab)
	}
	if want.TokenWeights {
		tokens(1)
	}
	if want.Multi {
		tokens(m.TokenDim)
	}
	if want.MaxSim {
		row(1)
	}
	if want.Logits {
		row(len(m.Labels))
	}
	if want.TokenLogits {
		tokens(len(m.Labels))
	}
	if want.Muvera != (fold.Muvera{}) {
		row(want.Muvera.Dims(m.TokenDim))
	}
	if want.SMVE != (fold.SMVE{}) {
		sparse(want.SMVE.Room(int(c.MaxLen)))
	}
	return sizes
}
