package task

import (
	"cmp"
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// Op is the operation that a request asks for.
type Op uint8

// The operations.
const (
	_        Op = iota
	Encode      // vectors of each input
	Score       // how relevant each input is to the query
	Extract     // what is in each input
	Classify    // the scores of the labels of a classification head
)

// String names the operation as error messages do; Extract and Classify share a name.
func (o Op) String() string {
	return [...]string{"none", "encoding", "scoring", "extraction", "extraction"}[o]
}

// Texts returns inputs of one text each.
func Texts(texts []string) []api.Item {
	out := make([]api.Item, len(texts))
	for i, s := range texts {
		out[i].Text, out[i].HasText = s, true
	}
	return out
}

// TokenLists returns inputs of token ids.
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

// Request asks one model for one operation on some inputs. This package only reads it.
type Request struct {
	Op     Op
	Model  *catalog.Resolved // the entry, in the one catalog snapshot that the request sees
	Name   string            // what the client calls the model; "": the entry's id
	Inputs []api.Item        // all of one kind: texts, pairs of texts, or token ids
	Query  *api.Item         // Score
	Field  string            // what the client calls the inputs, for errors; "": items

	Options      map[string]any // the request's own, laid over the profile's
	Instruction  *string        // Encode, Score; Extract with a GLiClass model
	TruncateLeft bool           // truncate texts at the start, not at the end

	// For Encode:
	OutputTypes []string // params.output_types
	OutputDType string   // params.output_dtype
	IsQuery     *bool    // params.is_query; options.is_query wins
	// keep this many first components and normalise again; 0: use the option of that name
	Dimensions int

	// Extract; zero-shot: the classes; other families: which of the model's labels to return, nil
	// for all
	Labels    []string
	Parts     []int // the item that each of Inputs is a part of, for errors; nil: all are items
	RawScores bool  // Classify: the head's logits; else their softmax, or the sigmoid of a single one
}

// name is what errors call the model.
func (r *Request) name() string {
	return cmp.Or(r.Name, r.Model.ID)
}

func (r *Request) field() string { return cmp.Or(r.Field, "items") }

// Result holds one answer per input, in order. Slices of other operations and outputs are nil.
type Result struct {
	Model *catalog.Resolved

	Rows [][]byte    // dense rows, little-endian
	Type api.NumType // of a row's elements
	Dims int         // components of a row, before bits are packed

	Sparse     []Sparse
	SparseType api.NumType // of the values
	SparseDims int         // columns that a row could have

	Multi     []Matrix
	MultiType api.NumType // of the elements
	TokenDims int         // components of a token's row, before bits are packed

	Scores  []float64   // Score: one per input, finite
	Found   []Extracted // Extract
	Labels  []string    // Classify: in the order of each row of Classes
	Classes [][]float64 // Classify: one row per input

	Tokens        int // read by the model, special tokens included
	ContentTokens int // Score: Tokens without special tokens; a cross-encoder counts the query in each pair
	// Score: those of Tokens that a query took which is read once for all inputs, and how many of
	// them are not special
	QueryTokens, QueryContent int
	Timings                   api.Timings
	Ignored                   []string // options of the request that are for other operations
}

// Extracted is what was found in one input: entities by place and relations between them, best
// first, or classes by score, best first. If Err is set, this input could not be answered, and the
// lists are empty.
type Extracted struct {
	Entities  []api.Entity
	Relations []api.Relation
	Classes   []api.Class
	Data      map[string]any // of groups of labels, by name; nil: none were asked for
	Err       *errs.Error
	Bare      bool // Err is set because the tokenizer leaves no token of the input
}
