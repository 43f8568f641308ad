package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// Want says which outputs a program over a model's weights has. Outputs gives their order. Want is
// comparable, because it is a map key of programs.
//
// In the comments below R is the batch's token rows, and K those of them that it keeps
// (engine.Recorder.KeepRows).
type Want struct {
	Dense   bool           // rows [B, Dim]: pooled, through the module chain
	Pooling engine.Pooling // of Dense; 0 = the model's own

	Sparse       bool // sparse rows [B, Vocab]: the SPLADE maximum
	TokenWeights bool // values [R, 1]: BGE-M3's lexical weight of each token, relu applied
	Multi        bool // token rows [K, TokenDim]: ColBERT's projection, not yet normalised
	MaxSim       bool // values [B, 1]: each sequence against its query; rows normalised
	Logits       bool // values [B, labels]: sequence classification, before any activation
	TokenLogits  bool // values [R, labels]: token classification

	// AttendKept makes tokens attend only to the tokens that the batch keeps, while Multi and
	// MaxSim read all rows. ColBERT's queries, which are filled up with [MASK], need it.
	AttendKept bool

	// Muvera asks for a dense row [B, ·] and SMVE for a sparse one, both folded from the token
	// vectors. With FoldQuery they are folded the way queries are.
	Muvera    fold.Muvera
	SMVE      fold.SMVE
	FoldQuery bool
}

// Output names one output of a program, after the field of Want that asks for it.
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

// Outputs lists the outputs of the program in order, starting with output 0. All code that
// declares, sizes or reads outputs uses this list.
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

// Folds reports whether a row is folded from the token vectors.
func (w Want) Folds() bool { return w.Muvera != (fold.Muvera{}) || w.SMVE != (fold.SMVE{}) }

// Task is the use of a model in the catalog. It says which heads are read in addition to the
// encoder.
type Task uint8

// The tasks.
const (
	_        Task = iota // no task: Load refuses it
	Embed                // dense vectors of the module chain
	Splade               // the masked-language-model head
	ColBERT              // the projection of token vectors
	BGEM3                // the encoder, colbert_linear.pt and sparse_linear.pt
	Classify             // a sequence classification head: scores, labels
	Tag                  // a token classification head
)

// String returns the task's name.
func (t Task) String() string {
	return [...]string{"none", "embed", "splade", "colbert", "bge_m3", "classify", "tag"}[t]
}

// Activation is the function that turns a logit into a score.
type Activation uint8

// The activations of scores.
const (
	Identity Activation = iota
	Sigmoid
)
