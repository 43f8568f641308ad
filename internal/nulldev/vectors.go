package nulldev

import (
	"math"
	"unicode/utf8"
)

// The roles of a text.
const (
	Document = "document"
	Query    = "query" // of an encode request with is_query, and of a score request
)

// The widths of a model whose catalog entry names none.
const (
	DefaultDims      = 384
	DefaultTokenDims = 128
	DefaultVocab     = 30_522
	DefaultMaxTokens = 8192
)

// Labels are the labels of every classification head.
var Labels = []string{"LABEL_0", "LABEL_1", "LABEL_2"}

// stream is a sequence of random numbers that depends on what it was made of alone.
type stream uint64

// The kinds of streams, so that the answers of two operations differ.
const (
	ofDense = iota + 1
	ofSparse
	ofMulti
	ofScore
	ofClass
	ofLabel
)

// newStream mixes a kind and texts by FNV-1a, with a mark after each text.
func newStream(kind uint64, texts ...string) stream {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (offset ^ kind) * prime
	for _, s := range texts {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
		h = (h ^ 0x1ff) * prime
	}
	return stream(h)
}

// next returns the next number, by SplitMix64.
func (s *stream) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float returns the next number as one in [-1, 1) that float32 holds exactly.
func (s *stream) float() float32 { return float32(int32(s.next()>>40)-1<<23) / (1 << 23) }

// Dense returns the vector of a text: dims numbers in [-1, 1), the first ones of a wider vector.
func Dense(model, role, text string, dims int) []float32 {
	s := newStream(ofDense, model, role, text)
	return s.floats(dims)
}

func (s *stream) floats(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = s.float()
	}
	return out
}

// sparseEntries is the number of columns of a sparse row, unless the vocabulary is smaller.
const sparseEntries = 16

// Sparse returns the sparse row of a text: ascending columns below vocab, and a weight above 0 for
// each.
func Sparse(model, role, text string, vocab int) (columns []int32, weights []float32) {
	s := newStream(ofSparse, model, role, text)
	n := min(sparseEntries, vocab)
	for i := range n {
		// one column in each of n equal parts of the vocabulary
		from, to := i*vocab/n, (i+1)*vocab/n
		columns = append(columns, int32(from+int(s.next()%uint64(max(1, to-from)))))
		weights = append(weights, float32(math.Abs(float64(s.float())))+1)
	}
	return columns, weights
}

// Multi returns the token vectors of a text, rows times dims numbers.
func Multi(model, role, text string, rows, dims int) []float32 {
	s := newStream(ofMulti, model, role, text)
	return s.floats(rows * dims)
}

// Score returns the score of a text for a query, in [0, 1).
func Score(model, query, text string) float64 {
	s := newStream(ofScore, model, query, text)
	return float64(s.next()>>11) / (1 << 53)
}

// Class returns the score of each of Labels for a text and the second text of a pair ("": none).
func Class(model, text, second string) []float64 {
	s := newStream(ofClass, model, text, second)
	out := make([]float64, len(Labels))
	for i := range out {
		out[i] = float64(s.next()>>11) / (1 << 53)
	}
	return out
}

// Label returns the score of a label for a text, in [0, 1): what extract finds.
func Label(model, text, label string) float64 {
	s := newStream(ofLabel, model, text, label)
	return float64(s.next()>>11) / (1 << 53)
}

// bytesPerToken is the length of a token of the null device.
const bytesPerToken = 4

// Tokens returns the number of tokens of a text, two special ones included: one for every four
// bytes that are begun.
func Tokens(text string) int { return (len(text)+bytesPerToken-1)/bytesPerToken + 2 }

// The ids of the special tokens. Every other id of /tokenize is a Unicode code point.
const (
	First = utf8.MaxRune + 1
	Last  = utf8.MaxRune + 2
)
