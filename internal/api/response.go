package api

import (
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// NumType is the element type of an Array; on the wire it has numpy's name.
type NumType uint8

// The element types.
const (
	Float32 NumType = iota // <f4
	Float16                // <f2
	Int8                   // |i1
	Uint8                  // |u1
	Int32                  // <i4
)

var numTypes = [...]struct {
	wire, label string
	size        int
}{{"<f4", "float32", 4}, {"<f2", "float16", 2}, {"|i1", "int8", 1}, {"|u1", "uint8", 1}, {"<i4", "int32", 4}}

// Size returns the bytes of one element.
func (t NumType) Size() int { return numTypes[t].size }

// String returns the dtype label: float32, float16, int8, uint8 or int32.
func (t NumType) String() string { return numTypes[t].label }

// Array is a dense array of one or two dimensions. Data holds Rows·Cols elements (Cols elements
// when Rows is negative), little-endian, row by row. Data is only read, and must not change while
// the response is being encoded.
type Array struct {
	Type NumType
	Rows int // negative: one dimension
	Cols int
	Data []byte
}

// Vector returns a one-dimensional Array over data.
func Vector(t NumType, data []byte) Array {
	return Array{Type: t, Rows: -1, Cols: len(data) / t.Size(), Data: data}
}

// Matrix returns a two-dimensional Array over data.
func Matrix(t NumType, rows, cols int, data []byte) Array {
	return Array{Type: t, Rows: rows, Cols: cols, Data: data}
}

// dtype returns the label of an array whose rows stand for dims values; packed bits are called
// binary.
func (a Array) dtype(dims int) string {
	if a.Type == Uint8 && a.Cols < dims {
		return "binary"
	}
	return a.Type.String()
}

// Dense is one vector per item. Dims is the model's width, even if bits are packed.
type Dense struct {
	Dims   int
	Values Array // one dimension
}

// Sparse is a vector of weights by vocabulary id.
type Sparse struct {
	Dims    int   // size of the vocabulary; 0: unknown
	Indices Array // one dimension, Int32, ascending
	Values  Array // one dimension, as long as Indices
}

// Multivector is one vector per token.
type Multivector struct {
	TokenDims int
	Values    Array // two dimensions: tokens by width
}

// EncodeItem is the result of one item: the id if the request named one, and the outputs asked for.
type EncodeItem struct {
	ID          string
	HasID       bool
	Dense       *Dense
	Sparse      *Sparse
	Multivector *Multivector
}

// Timing holds the milliseconds that the phases of a request took.
type Timing struct {
	Total, Queue, Tokenization, Inference float64
	Postprocessing                        float64 // 0 is written as null
	// Detailed adds preprocess_ms and batch_wait_ms, which the reference does not have.
	Detailed              bool
	Preprocess, BatchWait float64
}

// Usage counts the tokens and images that were processed. A measured 0 differs from an absent
// Usage.
type Usage struct {
	InputTokens int
	Images      int // written when above 0
	// ContentTokens counts, for score, the caller's own text; written when HasContent.
	ContentTokens int
	HasContent    bool

	// Not written: those of the tokens that a query took which was read once for all candidates,
	// and how many of them are the caller's own text.
	QueryTokens, QueryContent int
}

// Outcome describes a request's outcome apart from its results, for headers, the log and metrics.
// It is not part of a body.
type Outcome struct {
	ModelID  string // the model's id in the catalog
	Revision string // of its weights; "": not known
	Items    int    // that were answered
	Tokens   int    // that the model read, special ones included
	Timings  Timings
	Ignored  []string // options of the request that apply to other operations

	// A gateway sets the fields below.

	Alias      bool          // the name that the caller used stands for ModelID
	Worker     string        // id of the worker that answered; of several, the one that took longest
	Pool       string        // of the worker
	Profile    string        // of the worker's machine
	BundleHash string        // of the configuration that the worker ran; "": not known
	Publish    time.Duration // until all work was in the queue
	QueueWait  time.Duration // in the queue, of the slice that waited longest
	Fetch      time.Duration // of payloads, by the worker
}

// EncodeResponse is the answer of POST /v1/encode/{model}.
type EncodeResponse struct {
	Model  string // as in the path
	Items  []EncodeItem
	Timing *Timing // nil is written as null
	Usage  *Usage  // nil: counts unknown, key left out

	Outcome
}

// Score is the relevance of one candidate.
type Score struct {
	ItemID string
	Index  int     // of the item in the request; not written
	Score  float64 // finite
	Rank   int     // from 0
}

// ScoreResponse is the answer of POST /v1/score/{model}, best first.
type ScoreResponse struct {
	Model    string
	QueryID  string
	HasQuery bool // the query had an id; otherwise null
	Scores   []Score
	Usage    *Usage

	Outcome
}

// ClassifyResponse is the answer to a ClassifyRequest: one row of scores per item, in the order of
// Labels.
type ClassifyResponse struct {
	Labels []string
	Scores [][]float64
	Usage  *Usage

	Outcome
}

// Entity is a span of text or a region of an image.
type Entity struct {
	Text, Label string
	Score       float64
	Start, End  int // in code points; both negative: null
	Box         []int
}

// Relation connects two entities.
type Relation struct {
	Head, Tail, Relation string
	Score                float64
}

// Class is a label for the whole item.
type Class struct {
	Label string
	Score float64
}

// Object is a detected region, x, y, width and height in pixels.
type Object struct {
	Label string
	Score float64
	Box   []int
}

// ExtractItem is the result of one item. All lists are written, empty or not.
type ExtractItem struct {
	ID              string
	Entities        []Entity
	Relations       []Relation
	Classifications []Class
	Objects         []Object
	Data            map[string]any // scalars, []any and map[string]any
	Error           *errs.Error    // set when this item failed; only code and message are written
}

// ExtractResponse is the answer of POST /v1/extract/{model}.
type ExtractResponse struct {
	Model string
	Items []ExtractItem
	Usage *Usage

	Outcome
}

// ItemID returns the id under which item i of a score or extract request is answered.
func ItemID(it *Item, i int) string {
	if it.HasID {
		return it.ID
	}
	return "item-" + strconv.Itoa(i)
}
