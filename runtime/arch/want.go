package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// Want says which outputs a program over a model's weights gives; Outputs has their order. It is
// comparable: programs are kept by it.
//
// R below is the batch's token rows, K those of them that it keeps (engine.Recorder.KeepRows).
type Want struct {
	Dense   bool           // rows [B, Dim]: pooled, through the module chain
	Pooling engine.Pooling // of Dense; 0 = the model's own

	Sparse       bool // sparse rows [B, Vocab]: the SPLADE maximum
	TokenWeights bool // values [R, 1]: BGE-M3's lexical weight of each token, relu applied
	Multi        bool // token rows [K, TokenDim]: ColBERT's projection, not yet normalised
	MaxSim       bool // values [B, 1]: each sequence against its query; rows normalised
	Logits       bool // values [B, labels]: sequence classification, before any activation
	TokenLogits  bool // values [R, labels]: token classification

	// AttendKept lets tokens attend only to the tokens that the batch keeps, while Multi and MaxSim
	// read all rows: queries of ColBERT that are filled up with [MASK].
	AttendKept bool

	// A dense row [B, ·] and a sparse one folded from the token vectors; FoldQuery: as queries are.
	Muvera    fold.Muvera
	SMVE      fold.SMVE
	FoldQuery bool
}

// Output is what one output of a program gives: the field of Want that asked for it.
type Output uint8

// The outputs.
const (
	_ Output = iota
	OutDense
	OutSparse
	OutTokenWeights
	OutMulti
	OutMaxSim
	OutLogits
	OutTokenLogits
	OutMuvera
	OutSMVE
)

// Outputs are the outputs of the program in their order, the first of which is output 0. Whoever
// declares, sizes or reads outputs goes through this list.
func (w Want) Outputs() []Output {
	var list []Output
	for _, o := range [...]struct {
		given bool
		out   Output
	}{{w.Dense, OutDense}, {w.Sparse, OutSparse}, {w.TokenWeights, OutTokenWeights}, {w.Multi, OutMulti}, {w.MaxSim, OutMaxSim},
		{w.Logits, OutLogits}, {w.TokenLogits, OutTokenLogits}, {w.Muvera != (fold.Muvera{}), OutMuvera}, {w.SMVE != (fold.SMVE{}), OutSMVE}} {
		if o.given {
			list = append(list, o.out)
		}
	}
	return list
}

// Folds says whether a row is folded from the token vectors.
func (w Want) Folds() bool { return w.Muvera != (fold.Muvera{}) || w.SMVE != (fold.SMVE{}) }

// Task is what a catalog entry uses a model for: which heads are read from its files besides the
// encoder.
type Task uint8

// The tasks.
const (
	_        Task = iota // nothing: Load refuses it
	Embed                // dense vectors, by the module chain
	Splade               // the masked-language-model head
	ColBERT              // the projection of token vectors
	BGEM3                // the encoder, colbert_linear.pt and sparse_linear.pt
	Classify             // a sequence classification head: scores, labels
	Tag                  // a token classification head
)

// String names the task.
func (t Task) String() string {
	return [...]string{"none", "embed", "splade", "colbert", "bge_m3", "classify", "tag"}[t]
}

// Activation is what becomes of a logit that is a score.
type Activation uint8

// The activations of scores.
const (
	Identity Activation = iota
	Sigmoid
)
