package engine

//lint:file-ignore U1000 C reads the fields of these structs.

import "unsafe"

// entry is one entry of a program in the layout of C. params points to the struct that sie.h has
// for the kind.
type entry struct {
	kind   uint32
	_      uint32
	params unsafe.Pointer
}

// The kinds of entries, with the numbers of sie_kind.
const (
	kindSpace = 1 + iota
	kindInput
	kindEmbed
	kindNorm
	kindLinear
	kindColumns
	kindAttention
	kindRope
	kindGatherRows
	kindPool
	kindKeepRows
	kindSplade
	kindMaxSim
	kindOutputRows
	kindOutputValues
	kindOutputTokenRows
	kindOutputSparse
	kindOutputMuvera
	kindOutputSMVE
	kindJoin
	kindStream
	kindState
	kindStateRows
	kindTakeRows
	kindProduct
	kindDots
	kindLSTM
	kindOutputSpans
	kindOutputPairs
	kindGivenRows
	kindSoftmax
	endOfKinds
)

// The spaces and inputs have the same numbers in every program, so that one Batch fits any of them.
const (
	spaceTokens = 1 + iota
	spaceSequences
	spaceKept
	spaceQueries
	spaceWords
	spaceMarkers
	spaceSpans
)

const (
	inputIDs = 1 + iota
	inputTypeIDs
	inputKeep
	inputAdapter
	inputPartner
	inputQueries
	inputPrefixFirst
	inputPrefixRows
	inputWordFirst
	inputWordLast
	inputMarkers
	inputSpanFirst
	inputSpanLast
	endOfInputs
)

// The kinds of spaces, with the numbers of sie.h.
const (
	spaceSeqs   = 1
	spaceRows   = 2
	spaceSubset = 3
	spaceShared = 4
)

// The structs below mirror those of sie.h field by field; native.go compares their sizes, a test
// every field. Weights are C handles. Names and lists are Go memory, which is pinned while C reads
// it. size comes first in each; add sets it.

type spaceParams struct {
	size          uint32
	kind          uint32
	space         int32
	marks         int32
	rows, longest int64
	name          unsafe.Pointer
	shortest      int64
}

type inputParams struct {
	size      uint32
	input     int32
	space     int32
	dtype     uint32
	columns   int32
	optional  int32
	otherwise int32
	_         int32
	name      unsafe.Pointer
}

type embedParams struct {
	size                 uint32
	y                    Value
	ids, typeIDs         int32
	positions            int32
	positionOffset       int32
	word, position, typ  unsafe.Pointer
	gamma, beta          unsafe.Pointer
	norm                 uint32
	eps                  float32
	weightOffset, factor float32
}

type normParams struct {
	size              uint32
	norm              uint32
	x, residual       Value
	y, sum            Value
	gamma, beta, bias unsafe.Pointer
	eps               float32
	weightOffset      float32
}

type linearParams struct {
	size        uint32
	act         uint32
	gate        uint32
	x, residual Value
	y           Value
	w, bias     unsafe.Pointer
	adapter     int32
	adapters    int32
	a, b        unsafe.Pointer
}

type columnsParams struct {
	size          uint32
	x, y          Value
	_             int32
	column, width int64
}

type joinParams struct {
	size uint32
	y    Value
	x    [MaxJoined]Value
	_    int32
}

type streamParams struct {
	size uint32
	x    Value
}

type attentionParams struct {
	size    uint32
	mask    uint32
	q, k, v Value
	y       Value
	heads   int32
	kvHeads int32
	headDim int32
	window  int32
	scale   float32
	which   uint32
	alibi   unsafe.Pointer
	bias    unsafe.Pointer

	firstKeys int32
	segment   int32

	posKey, posQuery, buckets unsafe.Pointer
}

type ropeParams struct {
	size                    uint32
	q, k                    Value
	heads, kvHeads, headDim int32
	rot                     int32
	positionOffset          int32
	cos, sin                unsafe.Pointer
	qGamma, kGamma          unsafe.Pointer
	eps, weightOffset       float32
	behind                  int32
	_                       int32
	turns                   unsafe.Pointer
}

type stateParams struct {
	size        uint32
	_           int32
	rows        int64
	first, each int32
}

type stateRowsParams struct {
	size    uint32
	x       Value
	segment int32
	_       int32
}

type gatherRowsParams struct {
	size  uint32
	which uint32
	x, y  Value
}

type poolParams struct {
	size uint32
	mode uint32
	x, y Value
	w    unsafe.Pointer
}

type keepRowsParams struct {
	size uint32
	to   int32
	x, y Value
}

type takeRowsParams struct {
	size        uint32
	which       uint32
	to          int32
	x, y        Value
	first, last int32
	_           int32
}

type productParams struct {
	size    uint32
	a, b, y Value
}

type dotsParams struct {
	size    uint32
	a, b, y Value
}

type softmaxParams struct {
	size  uint32
	x, y  Value
	scale float32
}

type lstmParams struct {
	size       uint32
	gates, y   Value
	_          int32
	w, reverse unsafe.Pointer
}

type spladeParams struct {
	size    uint32
	x, y    Value
	_       int32
	w, bias unsafe.Pointer
}

type maxSimParams struct {
	size             uint32
	normalize        int32
	x, y             Value
	queries, partner int32
}

type givenRowsParams struct {
	size    uint32
	y       Value
	input   int32
	columns int32
}

type outputParams struct {
	size uint32
	x    Value
	name unsafe.Pointer
}

type outputSparseParams struct {
	size      uint32
	x         Value
	name      unsafe.Pointer
	transform uint32
	_         int32
}

type outputSpansParams struct {
	size         uint32
	widest       int32
	name         unsafe.Pointer
	starts, ends Value
	labels, bias Value
	partner      int32
	_            int32
}

type outputPairsParams struct {
	size               uint32
	partner            int32
	name               unsafe.Pointer
	words, wordTerms   Value
	labels, labelTerms Value
	w, head, bias      unsafe.Pointer
}

type muveraParams struct {
	size                                           uint32
	x                                              Value
	name                                           unsafe.Pointer
	repetitions, simhashBits, projected, finalDims int32
	query, fillEmpty, centerTokens, normalize      int32
	simhash, ams, sketch, output, source           unsafe.Pointer
}

type smveParams struct {
	size                                uint32
	x                                   Value
	name                                unsafe.Pointer
	repetitions, width, top, maxNonzero int32
	query, normalize                    int32
	anchors                             unsafe.Pointer
}
