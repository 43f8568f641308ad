package engine

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// OutputRows declares the next output: each sequence's row of x [B, C], written as its OutItem
// says. It returns the output's index.
func (r *Recorder) OutputRows(x Value) int {
	return output(r, kindOutputRows,
		func(p *outputParams, name unsafe.Pointer) { *p = outputParams{x: x, name: name} })
}

// OutputValues declares the next output: all rows of x as float32, dense, in batch order. It
// returns the output's index.
func (r *Recorder) OutputValues(x Value) int {
	return output(r, kindOutputValues,
		func(p *outputParams, name unsafe.Pointer) { *p = outputParams{x: x, name: name} })
}

// OutputTokenRows declares the next output: the rows of x, which has token rows or kept rows. Each
// row is written as its sequence's OutItem says. The rows of a sequence follow each other without
// gaps, from the item's offset. It returns the output's index.
func (r *Recorder) OutputTokenRows(x Value) int {
	return output(r, kindOutputTokenRows,
		func(p *outputParams, name unsafe.Pointer) { *p = outputParams{x: x, name: name} })
}

// Sparse is the transform of the values of a sparse output row.
type Sparse uint32

// The transforms: x, log(1 + x), log(1 + log(1 + x)).
const (
	SparseAsIs Sparse = iota
	SparseLog
	SparseLogLog
)

// SparseBytes returns the size of a sparse row with room for dims columns. It is a multiple of 16,
// because offsets have to be.
func SparseBytes(dims int, d DType) int64 {
	return (16 + int64(dims)*4 + d.RowBytes(int64(dims)) + 15) &^ 15
}

// SparseRow reads a sparse row with room for dims columns, which begins where its item put it.
// count is the number of columns that the row has; it may be more than dims. columns, ascending,
// and values are the first dims of them. values is a view of row: little-endian, of type d.
func SparseRow(row []byte, dims int, d DType) (count int, columns []int32, values []byte) {
	count = int(int32(binary.LittleEndian.Uint32(row)))
	columns = make([]int32, min(count, dims))
	for i := range columns {
		columns[i] = int32(binary.LittleEndian.Uint32(row[16+4*i:]))
	}
	values = row[16+4*dims:]
	return count, columns, values[:d.RowBytes(int64(len(columns)))]
}

// OutputSparse declares the next output: the columns of each sequence's row of x [B, V] whose value
// is above 0. Values pass through t. The layout is the one that SparseRow reads. It returns the
// output's index.
func (r *Recorder) OutputSparse(x Value, t Sparse) int {
	return output(r, kindOutputSparse, func(p *outputSparseParams, name unsafe.Pointer) {
		*p = outputSparseParams{x: x, name: name, transform: uint32(t)}
	})
}

// Muvera holds the parameters of a fixed dimensional encoding of token rows (arXiv:2405.19504). An
// encoding has R repetitions of 2^k partitions of P columns, where P is Projected, or the columns
// of x. Its tables are DataWeight. In AMS and the sketch an index i stands for +1 and ^i for −1.
type Muvera struct {
	Repetitions, SimHashBits, Projected, FinalDims int32 // Projected 0: identity; FinalDims 0: no sketch
	Query, FillEmpty, CenterTokens                 bool
	Normalize                                      bool // rows are divided by their norm first

	SimHash *Weight // F32 [R·C, k]; nil for k 0
	AMS     *Weight // I32 [R, C] of 0 to P−1; nil for identity

	Sketch                     *Weight // on a CPU: I32 [R·2^k·P, 1] of 0 to FinalDims−1
	SketchOutput, SketchSource *Weight // on a GPU: I32 [R·2^k·P, 1] both, of OrderSketch
}

// OutputMuvera declares the next output: the encoding of each sequence's rows of x, written as its
// OutItem says. It has FinalDims columns, or R·2^k·P without a sketch. It returns the output's
// index.
func (r *Recorder) OutputMuvera(x Value, m Muvera) int {
	return output(r, kindOutputMuvera, func(p *muveraParams, name unsafe.Pointer) {
		*p = muveraParams{
			x: x, name: name, repetitions: m.Repetitions, simhashBits: m.SimHashBits, projected: m.Projected,
			finalDims: m.FinalDims, query: flag(m.Query), fillEmpty: flag(m.FillEmpty),
			centerTokens: flag(m.CenterTokens), normalize: flag(m.Normalize), simhash: r.useLocked(m.SimHash),
			ams: r.useLocked(m.AMS), sketch: r.useLocked(m.Sketch), output: r.useLocked(m.SketchOutput),
			source: r.useLocked(m.SketchSource),
		}
	})
}

// OrderSketch orders the additions of a sketch of repetitions × block entries as GPUs make them.
// Errors: ErrInvalid for sizes that contradict each other, ErrCorrupt for an entry outside the
// finalDims columns.
func OrderSketch(sketch []int32, repetitions, block, finalDims int) (output, source []int32, err error) {
	if repetitions < 1 || block < 1 || finalDims < 1 || finalDims > 1<<20 || len(sketch) > 1<<24 ||
		len(sketch)/block != repetitions || len(sketch)%block != 0 {
		return nil, nil, invalid("muvera sketch", fmt.Sprintf(
			"%d entries for %d repetitions of %d columns to %d", len(sketch), repetitions, block, finalDims))
	}
	output, source = make([]int32, len(sketch)), make([]int32, len(sketch))
	if err := cMuveraOrder(sketch, repetitions, block, finalDims, output, source); err != nil {
		return nil, nil, err
	}
	return output, source, nil
}

// SMVE holds the parameters of a sparse multi-vector encoding over Repetitions·Width anchors.
type SMVE struct {
	Repetitions, Width int32
	Top                int32   // projections a row keeps, of each repetition
	MaxNonzeros        int32   // of an encoding; 0: all
	Query              bool    // sums; else means
	Normalize          bool    // rows are divided by their norm first
	Anchors            *Weight // DataWeight F32 [Repetitions·Width, C], of length 1
}

// OutputSMVE declares the next output: the encoding of each sequence's rows of x. The layout is the
// one that SparseRow reads. It returns the output's index.
func (r *Recorder) OutputSMVE(x Value, s SMVE) int {
	return output(r, kindOutputSMVE, func(p *smveParams, name unsafe.Pointer) {
		*p = smveParams{
			x: x, name: name, repetitions: s.Repetitions, width: s.Width, top: s.Top,
			maxNonzero: s.MaxNonzeros, query: flag(s.Query), normalize: flag(s.Normalize),
			anchors: r.useLocked(s.Anchors),
		}
	})
}

// OutputForm is the layout of an output.
type OutputForm uint32

// The forms. All but FormValues take an OutItem for each sequence.
const (
	FormValues    OutputForm = 1 // all rows, densely, float32
	FormRows      OutputForm = 2 // one row per sequence
	FormTokenRows OutputForm = 3 // each sequence's rows, one after another
	FormSparse    OutputForm = 4 // one row per sequence: its columns above 0, with their values
	FormFound     OutputForm = 5 // records per sequence: its scores above a threshold (Spans, Pairs)
)

// Output describes one output of a recorded program.
type Output struct {
	Name     string
	Form     OutputForm
	PerToken bool // rows are of tokens or kept tokens, or as Of says; not of sequences
	Of       Rows // words, markers or spans; 0: other rows
	Columns  int  // of a row before its item cuts it; FormFound: numbers of 4 bytes in a record
}
