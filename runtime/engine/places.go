package engine

import "fmt"

// Rows names the kind of rows of a value.
type Rows int32

// The kinds of rows that a batch lists by their places.
const (
	RowsWords   Rows = spaceWords   // made of tokens: the first to the last of a word
	RowsMarkers Rows = spaceMarkers // each one token, such as a label's marker
	RowsSpans   Rows = spaceSpans   // made of words: the first to the last of a span
)

func (t Rows) String() string {
	return name("rows", t, map[Rows]string{RowsWords: "words", RowsMarkers: "markers", RowsSpans: "spans"})
}

// listed returns the rows of a space, or 0 if a batch does not list them.
func listed(space int32) Rows {
	switch t := Rows(space); t {
	case RowsWords, RowsMarkers, RowsSpans:
		return t
	}
	return 0
}

func (r *Recorder) declarePlaces() {
	declare := func(space Rows, rows, longest int64) {
		if rows != 0 {
			r.declareSpace(spaceParams{kind: spaceRows, space: int32(space), rows: rows, longest: longest},
				space.String())
		}
	}
	declare(RowsWords, r.caps.MaxWords, min(r.caps.MaxWords, r.caps.MaxLen))
	declare(RowsMarkers, r.caps.MaxMarkers, min(r.caps.MaxMarkers, r.caps.MaxLen))
	declare(RowsSpans, r.caps.MaxSpans, r.caps.MaxSpans)
}

// firsts and lasts declare the inputs of places. Markers have no last ones.
func (r *Recorder) firsts(to Rows) int32 {
	switch to {
	case RowsWords:
		return r.input(inputWordFirst, "word_first", spaceWords, I32, false, 0)
	case RowsMarkers:
		return r.input(inputMarkers, "markers", spaceMarkers, I32, false, 0)
	}
	return r.input(inputSpanFirst, "span_first", spaceSpans, I32, false, 0)
}

func (r *Recorder) lasts(to Rows) int32 {
	if to == RowsWords {
		return r.input(inputWordLast, "word_last", spaceWords, I32, false, 0)
	}
	return r.input(inputSpanLast, "span_last", spaceSpans, I32, false, 0)
}

// hasRows reports whether the program declares the rows, and fails the recording if not.
func (r *Recorder) hasRows(to Rows) bool {
	bounds := map[Rows]int64{
		RowsWords: r.caps.MaxWords, RowsMarkers: r.caps.MaxMarkers, RowsSpans: r.caps.MaxSpans,
	}
	most, known := bounds[to]
	if !known || most == 0 {
		r.Fail(invalid("take rows", fmt.Sprintf("the program's caps have no room for rows of %v", to)))
	}
	return r.err == nil
}

// take records y[R, C], the rows that which makes of rows of x.
func (r *Recorder) take(x Value, to Rows, which Pooling) Value {
	if !r.hasRows(to) {
		return NoValue
	}
	p := takeRowsParams{which: uint32(which), to: int32(to), x: x}
	if which == PoolCLS || which == PoolMean {
		p.first = r.firsts(to)
	}
	if which == PoolLast || which == PoolMean {
		if to == RowsMarkers {
			r.Fail(invalid("take rows", "a marker is one token: it has no last one and no mean"))
			return NoValue
		}
		p.last = r.lasts(to)
	}
	return operation(r, kindTakeRows, func(params *takeRowsParams, y Value) {
		*params = p
		params.y = y
	})
}

// TakeFirst records y[R, C], for each word, marker or span of `to` its first row of x. x has token
// rows for words and markers, rows of words for spans.
func (r *Recorder) TakeFirst(x Value, to Rows) Value { return r.take(x, to, PoolCLS) }

// TakeLast is TakeFirst for the last row of each word or span.
func (r *Recorder) TakeLast(x Value, to Rows) Value { return r.take(x, to, PoolLast) }

// TakeMean is TakeFirst for the mean of the rows of each word or span.
func (r *Recorder) TakeMean(x Value, to Rows) Value { return r.take(x, to, PoolMean) }

// TakeSequence records y[R, C]: each word, marker or span of `to` gets the row of its sequence. x
// has one row a sequence.
func (r *Recorder) TakeSequence(x Value, to Rows) Value { return r.take(x, to, 0) }

// Product records y[R, C] = a·b, element by element. Both have the same rows and columns and are of
// one class.
func (r *Recorder) Product(a, b Value) Value {
	return operation(r, kindProduct,
		func(p *productParams, y Value) { *p = productParams{a: a, b: b, y: y} })
}

// Dots records y[R, 1] in float32, the inner product of each row of a with that row of b.
func (r *Recorder) Dots(a, b Value) Value {
	return operation(r, kindDots, func(p *dotsParams, y Value) { *p = dotsParams{a: a, b: b, y: y} })
}

// Softmax records y[R, 1] in float32, the softmax of scale·x over the rows of each sequence. x is
// float32, [R, 1], of token rows, words, markers or spans. No GPU computes it.
func (r *Recorder) Softmax(x Value, scale float32) Value {
	return operation(r, kindSoftmax,
		func(p *softmaxParams, y Value) { *p = softmaxParams{x: x, y: y, scale: scale} })
}

// LSTM records y[R, H·D], the states of an LSTM over the rows of each sequence, in D directions:
// that of w, the reverse one of reverse, or both, with w's columns first. w and reverse are W_hh,
// linear weights [4H, H] of ComputeF32, or nil. gates [R, 4H·D] are the products with W_ih, both
// biases added, in PyTorch's order i, f, g, o; for two directions w's 4H columns come first. A
// direction begins with zeros at the sequence's own end.
func (r *Recorder) LSTM(gates Value, w, reverse *Weight) Value {
	return operation(r, kindLSTM, func(p *lstmParams, y Value) {
		*p = lstmParams{gates: gates, y: y, w: r.useLocked(w), reverse: r.useLocked(reverse)}
	})
}
