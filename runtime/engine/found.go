package engine

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// MaxSpanWidth is the largest number of words of a span.
const MaxSpanWidth = 256

// SpanScores holds the operands of OutputSpans. Starts and Ends have rows of one space (words),
// Labels and Bias of another (markers). Or Labels and Bias are GivenRows.
type SpanScores struct {
	Starts, Ends Value // [words, K]
	Labels       Value // [labels, K]
	Bias         Value // [labels, 1]; NoValue: 0
	Widest       int   // words of a span, 1 to MaxSpanWidth
	Given        bool  // the labels are given: a sequence has those of its query
}

// GivenRows records y[R, C], the rows of Batch.Queries, which have C columns in this program. Views
// of their columns are the labels of OutputSpans and OutputPairs; nothing else reads them.
func (r *Recorder) GivenRows(columns int64) Value {
	if r.caps.MaxQueryRows == 0 {
		r.Fail(invalid("given rows", "the program's MaxQueryRows is 0: it needs room for rows of queries"))
		return NoValue
	}
	queries := r.input(inputQueries, "queries", spaceQueries, F32, false, 0)
	return operation(r, kindGivenRows, func(p *givenRowsParams, y Value) {
		*p = givenRowsParams{y: y, input: queries, columns: int32(min(columns, math.MaxInt32))}
	})
}

// partnerOf returns the input that says which query's rows a sequence has, or 0 where it has its
// own.
func (r *Recorder) partnerOf(given bool) int32 {
	if !given {
		return 0
	}
	return r.partner()
}

// OutputSpans declares the next output: for every word i of a sequence, every width w below Widest
// with word i + w in the sequence, and every label c of it, the logit
//
//	y = relu(starts_i + ends_(i+w))·labels_c + bias_c
//
// where it is above the Threshold of the sequence's OutItem. That is GLiNER's span layer: with
// s and e the projected words, W₁ = [W_s W_e] and b₁ the first linear of its out projection, W₃ and
// b₃ the second, and p the label vectors,
//
//	starts = relu(s)·W_sᵀ + b₁,  ends = relu(e)·W_eᵀ,  labels = p·W₃,  bias = p·b₃
//
// The last two are one linear with the weight [W₃ᵀ ; b₃]. The layout is the one that Spans reads.
// It returns the output's index.
func (r *Recorder) OutputSpans(s SpanScores) int {
	partner := r.partnerOf(s.Given)
	return output(r, kindOutputSpans, func(p *outputSpansParams, name unsafe.Pointer) {
		*p = outputSpansParams{
			widest: int32(min(s.Widest, math.MaxInt32)), name: name, starts: s.Starts, ends: s.Ends,
			labels: s.Labels, bias: s.Bias, partner: partner,
		}
	})
}

// PairScores holds the operands of OutputPairs. Words and WordTerms have rows of one space (words
// or sequences), Labels and LabelTerms of another (markers). Or Labels and LabelTerms are
// GivenRows.
type PairScores struct {
	Words, WordTerms   Value   // [words, K], [words, N]
	Labels, LabelTerms Value   // [labels, K], [labels, N]
	Weight             *Weight // LinearWeight [N, K] of class F32, BF16 or F16
	Head               *Weight // DataWeight F32 [logits, N], 1 to 3 logits
	Bias               *Weight // VectorWeight [logits]; nil: 0
	Given              bool    // the labels are given: a sequence has those of its query
}

// OutputPairs declares the next output: for every word i and every label c of a sequence the logits
//
//	y = head·relu(weight·(words_i∘labels_c) + wordTerms_i + labelTerms_c) + bias
//
// where one of them is above the Threshold of the sequence's OutItem. That is the scorer of
// GLiNER's token models: with t⁰ t¹ and l⁰ l¹ the halves of its projections, W₁ = [W_t W_l W_p] and
// b₁ the first linear of its MLP,
//
//	words = t¹,  wordTerms = t⁰·W_tᵀ + b₁,  labels = l¹,  labelTerms = l⁰·W_lᵀ,  weight = W_p
//
// The layout is the one that Pairs reads. It returns the output's index.
func (r *Recorder) OutputPairs(s PairScores) int {
	partner := r.partnerOf(s.Given)
	return output(r, kindOutputPairs, func(p *outputPairsParams, name unsafe.Pointer) {
		*p = outputPairsParams{
			partner: partner, name: name, words: s.Words, wordTerms: s.WordTerms,
			labels: s.Labels, labelTerms: s.LabelTerms,
			w: r.useLocked(s.Weight), head: r.useLocked(s.Head), bias: r.useLocked(s.Bias),
		}
	})
}

// FoundBytes returns the size of an item of a found output with room for that many records of o, in
// bytes. It is a multiple of 16, because offsets have to be.
func FoundBytes(o *Output, room int) int64 {
	return (foundHead + 4*int64(o.Columns)*int64(room) + 15) &^ 15
}

// foundHead is the size of what precedes the records of a found item, in bytes.
const foundHead = 16

// Span is a found span: the words First to Last of a sequence and a label of it, all counted from
// 0.
type Span struct {
	First, Last, Label int32
	Logit              float32
}

// Spans reads an item of OutputSpans with room for that many records. count is the number of spans
// that were found; it may be more than room. The result has the first room of them, in ascending
// order of word, width and label.
func Spans(item []byte, room int) (count int, spans []Span) {
	count = int(int32(binary.LittleEndian.Uint32(item)))
	spans = make([]Span, min(count, room))
	for i := range spans {
		r := item[foundHead+16*i:]
		first := int32(binary.LittleEndian.Uint32(r))
		spans[i] = Span{
			First: first, Last: first + int32(binary.LittleEndian.Uint32(r[4:])),
			Label: int32(binary.LittleEndian.Uint32(r[8:])),
			Logit: math.Float32frombits(binary.LittleEndian.Uint32(r[12:])),
		}
	}
	return count, spans
}

// Pair is a found pair of a word and a label of a sequence, counted from 0. Of GLiNER's token
// models the logits are of the label's start, end and inside. Those beyond the output's own are 0.
type Pair struct {
	Word, Label int32
	Logits      [3]float32
}

// Pairs reads an item of OutputPairs o with room for that many records. count is the number of
// pairs that were found; it may be more than room. The result has the first room of them, in
// ascending order of word and label.
func Pairs(o *Output, item []byte, room int) (count int, pairs []Pair) {
	count = int(int32(binary.LittleEndian.Uint32(item)))
	pairs = make([]Pair, min(count, room))
	for i := range pairs {
		r := item[foundHead+4*o.Columns*i:]
		p := &pairs[i]
		p.Word = int32(binary.LittleEndian.Uint32(r))
		p.Label = int32(binary.LittleEndian.Uint32(r[4:]))
		for l := range o.Columns - 2 {
			p.Logits[l] = math.Float32frombits(binary.LittleEndian.Uint32(r[8+4*l:]))
		}
	}
	return count, pairs
}
