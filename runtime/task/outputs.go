package task

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/half"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/model"
)

// outputs says which forms of vectors an encode result has.
type outputs struct{ dense, sparse, multi bool }

// outputForm is one of the output types that a client may ask for.
type outputForm struct {
	device  engine.DType
	element api.NumType
	bits    int // per component
}

var outputForms = map[string]outputForm{
	"float32": {engine.F32, api.Float32, 32},
	"float16": {engine.F16, api.Float16, 16},
	"int8":    {engine.I8, api.Int8, 8},
	"uint8":   {engine.U8, api.Uint8, 8},
	"binary":  {engine.Binary, api.Uint8, 1},
	"ubinary": {engine.Binary, api.Uint8, 1},
}

// bytes returns the size of a row of dims components, in bytes.
func (f outputForm) bytes(dims int) int { return (dims*f.bits + 7) / 8 }

// weights returns the form of a sparse row's values, which are never quantised.
func (f outputForm) weights() outputForm {
	if f.device == engine.F16 {
		return f
	}
	return outputForms["float32"]
}

// Sparse is one text's sparse row: columns in ascending order, and a value for each.
type Sparse struct {
	Columns []byte // int32, little-endian
	Values  []byte // one per column, of the result's SparseType
}

// Matrix holds one vector per token.
type Matrix struct {
	Rows int
	Data []byte // row by row, little-endian
}

// forms says which widths and types the results of a request's texts have.
type forms struct {
	rows, weights outputForm
	dims          int  // of a dense row
	normalize     bool // of dense rows
	tokenDims     int
	unitTokens    bool // normalise token rows
	vocab         int  // columns of a sparse row
}

// settle sets the widths, which only the loaded model knows.
func (e *encoding) settle() error {
	p, m := e.Prepared, e.use.Weights()
	e.forms = forms{
		rows:       p.form,
		weights:    p.form.weights(),
		dims:       m.Dim,
		normalize:  m.Normalize,
		tokenDims:  m.TokenDim,
		unitTokens: true,
		vocab:      m.Vocab,
	}
	f := &e.forms
	if n := p.options.Normalize; n != nil {
		f.normalize, f.unitTokens = *n, *n
	}
	if p.fold != nil {
		p.fold.settle(f)
	}
	if p.dimensions > 0 {
		if p.dimensions > f.dims {
			return errs.UnsupportedField("dimensions",
				fmt.Sprintf("dimensions must be at most %d, the width of model '%s'; got %d",
					f.dims, p.model.ID, p.dimensions))
		}
		f.dims, f.normalize = p.dimensions, true
	}
	if p.outputs.dense {
		e.whole = f.rows.bytes(f.dims)
	}
	return nil
}

// makeRoom allocates the lists of the results.
func (e *encoding) makeRoom() {
	p, f, out := e.Prepared, &e.forms, &e.result
	if p.outputs.dense {
		out.Rows, out.Type, out.Dims = make([][]byte, e.n), f.rows.element, f.dims
	}
	if p.outputs.sparse {
		out.Sparse, out.SparseType, out.SparseDims = make([]Sparse, e.n), f.weights.element, f.vocab
	}
	if p.outputs.multi {
		out.Multi, out.MultiType, out.TokenDims = make([]Matrix, e.n), f.rows.element, f.tokenDims
	}
}

// sparseHead is the size of what precedes the columns of a sparse row, in bytes
// (sie_op_output_sparse).
const sparseHead = 16

// sparse returns the spec of a sparse result with room for room columns, at most the vocabulary.
func (f *forms) sparse(room int) batch.Spec {
	room = min(room, f.vocab)
	return batch.Spec{
		DType: int32(f.weights.device), Dims: int32(room), Bytes: sparseHead + room*(4+f.weights.bits/8),
	}
}

// sizes makes the specs of items from what their program says that it gives.
type sizes struct {
	forms
	variant *model.Variant
	fixed   []batch.Spec // of every item, where no result depends on the text
}

func newSizes(v *model.Variant, f forms) sizes {
	s := sizes{forms: f, variant: v}
	for i := range v.Outputs {
		if o := &v.Outputs[i]; o.PerToken || o.Form == engine.FormSparse {
			return s
		}
	}
	s.fixed = s.make(0, 0)
	return s
}

// of returns the specs of a text of that many tokens whose result has rows token rows. They may be
// shared: nobody changes them.
func (s *sizes) of(tokens, rows int) []batch.Spec {
	if s.fixed != nil {
		return s.fixed
	}
	return s.make(tokens, rows)
}

func (s *sizes) make(tokens, rows int) []batch.Spec {
	v, out := s.variant, make([]batch.Spec, len(s.variant.Outputs))
	kept := rows // rows whose token vectors the result or the folding reads
	if v.Want.AttendKept && v.Want.Give.Has(arch.OutMulti) {
		kept = tokens
	}
	for i := range v.Outputs {
		switch o := &v.Outputs[i]; {
		case o.Form == engine.FormRows:
			out[i] = s.row(s.dims)
		case o.Form == engine.FormTokenRows:
			out[i] = s.row(s.tokenDims)
			out[i].Normalize = s.unitTokens
			out[i].Bytes *= kept
		case o.Form == engine.FormSparse:
			out[i] = s.sparse(v.SparseRoom(o, kept))
		case o.Of != 0:
			out[i] = values(rows * o.Columns)
		case o.PerToken:
			out[i] = values(tokens * o.Columns)
		default:
			out[i] = values(o.Columns)
		}
	}
	return out
}

func (f *forms) row(dims int) batch.Spec {
	return batch.Spec{
		DType: int32(f.rows.device), Dims: int32(dims), Normalize: f.normalize, Bytes: f.rows.bytes(dims),
	}
}

// values returns the spec of n float32 that are copied unchanged from the device.
func values(n int) batch.Spec {
	return batch.Spec{DType: int32(engine.F32), Values: true, Bytes: 4 * n}
}

// take puts the results of text i in their places.
func (e *encoding) take(i int, r *batch.Result) error {
	for k := range e.variant.Outputs {
		data := r[k]
		switch e.variant.Outputs[k].Form {
		case engine.FormRows:
			e.result.Rows[i] = data
		case engine.FormSparse:
			if err := e.takeSparse(i, data); err != nil {
				return err
			}
		case engine.FormValues: // a weight for each token
			e.result.Sparse[i] = e.forms.sparseOf(lexical(e.use.Tokenizer(), e.kept[i], floats(data)))
		case engine.FormTokenRows:
			bytes := max(1, e.forms.rows.bytes(e.forms.tokenDims))
			if e.trim != nil {
				data = e.trim(data, bytes, e.kept[i])
			}
			e.result.Multi[i] = Matrix{Rows: len(data) / bytes, Data: data}
		}
	}
	return nil
}

// takeSparse reads a sparse row, or notes that it needs more room.
func (e *encoding) takeSparse(i int, b []byte) error {
	n := int(int32(binary.LittleEndian.Uint32(b)))
	width := e.forms.weights.bits / 8
	room := (len(b) - sparseHead) / (4 + width)
	if n < 0 || n > e.forms.vocab {
		return fmt.Errorf("task: a sparse row of %d columns over a vocabulary of %d", n, e.forms.vocab)
	}
	if n > room {
		e.short, e.room = append(e.short, i), max(e.room, n)
		return nil
	}
	values := sparseHead + 4*room
	e.result.Sparse[i] = Sparse{
		Columns: b[sparseHead : sparseHead+4*n : sparseHead+4*n],
		Values:  b[values : values+width*n : values+width*n],
	}.without(e.dropped, width)
	return nil
}

// floats reads little-endian float32.
func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// weighted is a sparse row as numbers; byColumn puts its columns in ascending order.
type weighted struct {
	columns []int32
	weights []float32
}

// byColumn sorts a row by column and keeps the largest weight of each column.
func (w *weighted) byColumn() {
	order := make([]int, len(w.columns))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.columns[a], w.columns[b]), cmp.Compare(w.weights[b], w.weights[a]))
	})
	out := weighted{}
	for _, i := range order {
		if n := len(out.columns); n == 0 || out.columns[n-1] != w.columns[i] {
			out.columns, out.weights = append(out.columns, w.columns[i]), append(out.weights, w.weights[i])
		}
	}
	*w = out
}

// sparseOf encodes a row in the form of the request.
func (f *forms) sparseOf(w weighted) Sparse {
	var s Sparse
	for i, c := range w.columns {
		s.Columns = binary.LittleEndian.AppendUint32(s.Columns, uint32(c))
		if f.weights.device == engine.F16 {
			s.Values = binary.LittleEndian.AppendUint16(s.Values, half.FromFloat32(w.weights[i]))
		} else {
			s.Values = binary.LittleEndian.AppendUint32(s.Values, math.Float32bits(w.weights[i]))
		}
	}
	return s
}

// ints reads little-endian int32.
func ints(b []byte) []int32 {
	out := make([]int32, len(b)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
