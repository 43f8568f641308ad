package arch

import (
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// Output names one thing that programs can give. It is the name of that output in engine.Output.
// Each head declares its own, and says there how its rows look. In these comments B is the number
// of sequences, R the number of the batch's token rows, and K that of the rows which it keeps
// (engine.Recorder.KeepRows).
type Output string

// Outputs lists outputs from the first on; the rest is "". It is an array, because Want is a map
// key.
type Outputs [engine.MaxOutputs]Output

// Give returns a list of outputs. It panics if they are more than a program can have.
func Give(outputs ...Output) (list Outputs) {
	if len(outputs) > len(list) {
		panic("more outputs than a program can have")
	}
	copy(list[:], outputs)
	return list
}

// Has reports whether o is in the list.
func (list Outputs) Has(o Output) bool { return o != "" && slices.Contains(list[:], o) }

// Want says which outputs a program over a model's weights has. It is comparable, because it is a
// map key of programs.
type Want struct {
	Give    Outputs        // without those that are folded
	Pooling engine.Pooling // of OutDense; 0 = the model's own, which may be several

	// AttendKept makes tokens attend only to the tokens that the batch keeps, while outputs of
	// token vectors read all rows. ColBERT's queries, which are filled up with [MASK], need it.
	// Such a batch keeps the first tokens of each text. In a window a token may see none of them,
	// and attention then gives it zeros, as torch's scaled_dot_product_attention does.
	AttendKept bool

	// Long asks for the program of the texts that are longer than Model.ShortLen, and of no others.
	Long bool

	// Muvera asks for OutMuvera and SMVE for OutSMVE. With FoldQuery the token vectors are folded
	// the way those of queries are.
	Muvera    fold.Muvera
	SMVE      fold.SMVE
	FoldQuery bool
}

// Outputs lists the outputs of a program in order, starting with output 0.
func (w Want) Outputs() []Output {
	list := make([]Output, 0, len(w.Give))
	for _, o := range w.Give {
		if o != "" {
			list = append(list, o)
		}
	}
	if w.Muvera != (fold.Muvera{}) {
		list = append(list, OutMuvera)
	}
	if w.SMVE != (fold.SMVE{}) {
		list = append(list, OutSMVE)
	}
	return list
}

// Folds reports whether a row is folded from the token vectors.
func (w Want) Folds() bool { return w.Muvera != (fold.Muvera{}) || w.SMVE != (fold.SMVE{}) }

// SparseRoom bounds the columns above 0 in a row of the sparse output o that is made of that many
// tokens.
func (w Want) SparseRoom(o *engine.Output, tokens int) int {
	if Output(o.Name) == OutSMVE {
		return w.SMVE.Room(tokens)
	}
	return o.Columns
}

// Activation is the function that turns a logit into a score.
type Activation uint8

// The activations of scores.
const (
	Identity Activation = iota
	Sigmoid
)
