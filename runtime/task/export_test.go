package task

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// What the external tests of this package use.
const (
	ChunkTexts  = chunkTexts
	ChunksAhead = chunksAhead
)

// Internal functions and variables.
var (
	Floats    = floats
	Ints      = ints
	SparseMap = sparseMap
	Softmax   = softmax
	MarkersOf = markersOf
)

// SparseRow returns a row of weights in the form that an answer of type dtype has.
func SparseRow(
	columns []int32, weights []float32, dtype string,
) (outColumns []int32, outWeights []float32, s Sparse) {
	w := weighted{columns, weights}
	w.byColumn()
	f := forms{weights: outputForms[dtype]}
	return w.columns, w.weights, f.sparseOf(w)
}

// Lexical returns BGE-M3's sparse row.
func Lexical(t *tokenizer.Tokenizer, ids []int32, weights []float32) (columns []int32, out []float32) {
	w := lexical(t, ids, weights)
	return w.columns, w.weights
}

// ServedFamilies returns the families of the table.
func ServedFamilies() (out []catalog.Family) {
	for f := range families {
		out = append(out, f)
	}
	return out
}

// CommonStart returns the ids that items share.
func CommonStart(items []batch.Item, longest, maxTokens int) []int32 {
	return commonStart(items, longest, maxTokens)
}
