package task

import (
	"cmp"
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// Op is what a request asks for.
type Op uint8

// The operations.
const (
	_        Op = iota
	Encode      // vectors of each input
	Score       // how relevant each input is to the query
	Extract     // what is in each input
	Classify    // the scores of the labels of a classification head
)

// String names the operation as errors and metrics do.
func (o Op) String() string {
	return [...]string{"none", "encoding", "scoring", "extraction", "extraction"}[o]
}

// Texts are inputs of one text each.
func Texts(texts []string) []api.Item {
	out := make([]api.Item, len(texts))
	for i, s := range texts {
		out[i].Text, out[i].HasText = s, true
	}
	return out
}

// TokenLists are inputs of token ids.
func TokenLists(lists [][]int32) []api.Item {
	out, extra := make([]api.Item, len(lists)), make([]api.ItemExtra, len(lists))
	for i, ids := range lists {
		if extra[i].Tokens = ids; ids == nil {
			extra[i].Tokens = []int32{} // a list without ids, not a text
		}
		out[i].Extra = &extra[i]
	}
	return out
}

// tokensOf are the ids that an input has instead of a text, or nil.
func tokensOf(in *api.Item) []int32 {
	if in.Extra == nil {
		return nil
	}
	return in.Extra.Tokens
}

// secondOf is the text that is read together with an input's own, or nil.
func secondOf(in *api.Item) *string {
	if in.Extra == nil {
		return nil
	}
	return in.Extra.Second
}

// Request asks a model for something about some inputs. It is only read.
type Request struct {
	Op     Op
	Model  *catalog.Resolved // the entry, of the one view of the catalog that the request sees
	Name   string            // what the client calls the model; "": the entry's id
	Inputs []api.Item        // alike: all of them texts, pairs of texts, or token ids
	Query  *api.Item         // Score
	Field  string            // what the client calls the inputs, for errors; "": items

	Options      map[string]any // the request's own, laid over the profile's
	Instruction  *string        // Encode, Score
	TruncateLeft bool           // keep the end of what is too long, not its start

	// Of Encode:
	OutputTypes []string // params.output_types
	OutputDType string   // params.output_dtype
	IsQuery     *bool    // params.is_query; options.is_query wins
	Dimensions  int      // keep the first components and normalise again; 0: as the option of that name says

	Labels    []string // Extract: zero-shot: what to look for; else which of the model's labels to answer with, nil for all
	RawScores bool     // Classify: the head's logits; else their softmax, or the sigmoid of a single one
}

// name is what errors call the model.
func (r *Request) name() string {
	return cmp.Or(r.Name, r.Model.ID)
}

func (r *Request) field() string { return cmp.Or(r.Field, "items") }

// Result holds what was asked for of each input, in order; the other slices are nil.
type Result struct {
	Model *catalog.Resolved

	Rows [][]byte    // dense rows, little-endian
	Type api.NumType // of a row's elements
	Dims int         // components of a row, before bits are packed

	Sparse     []Sparse
	SparseType api.NumType // of the values
	SparseDims int         // columns there could be

	Multi     []Matrix
	MultiType api.NumType // of the elements
	TokenDims int         // components of a token's row, before bits are packed

	Scores  []float64   // Score: one an input, finite
	Found   []Extracted // Extract
	Labels  []string    // Classify: in the order of each row of Classes
	Classes [][]float64 // Classify: one row an input

	Tokens        int // read by the model, special tokens included
	ContentTokens int // Score: of them, those that are no special tokens, and the query once
	Timings       api.Timings
	Ignored       []string // options of the request that are for other operations
}

// Extracted is what was found in one input: entities by place, classes by score, best first. One
// with Err has neither: it could not be answered, and the others could.
type Extracted struct {
	Entities []api.Entity
	Classes  []api.Class
	Err      *errs.Error
}
