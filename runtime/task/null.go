package task

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/half"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/model"
)

// null answers the request on the null device: its items go through the model's queue, and each
// answer is computed here when its batch has run.
func (r *run) null() error {
	r.reader = &reader{}
	r.queue = r.use.NullQueue()
	n, d := len(r.req.Inputs), &nullRequest{run: r}
	var put func(i int) error
	switch r.req.Op {
	case Encode:
		e := &encoding{run: r, n: n}
		if err := e.settle(); err != nil {
			return err
		}
		if err := r.hold(int64(n)*int64(vectorBytes+e.whole), n); err != nil {
			return err
		}
		e.makeRoom()
		d.vectors, put = e, d.encode
	case Score:
		r.result.Scores, put = make([]float64, n), d.score
	case Extract:
		found := 1 // an entity
		if classes := r.family.extract.classes; classes != nil {
			found = classes(r)
		}
		if err := r.hold(int64(n)*int64(listBytes+entryBytes*found), n); err != nil {
			return err
		}
		r.result.Found, put = make([]Extracted, n), d.extract
	case Classify:
		if err := r.hold(int64(n)*int64(listBytes+entryBytes*len(nulldev.Labels)), n); err != nil {
			return err
		}
		r.result.Labels, r.result.Classes, put = nulldev.Labels, make([][]float64, n), d.classify
	}
	r.prepared()
	j := job{
		ctx: r.ctx, queue: r.queue, n: n, timings: &r.result.Timings, make: d.items,
		put: func(first int, results []batch.Result) error {
			for i := range results {
				if err := put(first + i); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return j.run()
}

// nullRequest makes items and answers of one request. Owned by one goroutine.
type nullRequest struct {
	*run
	vectors *encoding // of Encode
}

// text returns what stands for input i: its text, or its token ids as code points.
func (d *nullRequest) text(i int) string {
	in := &d.req.Inputs[i]
	if ids := in.Tokens(); ids != nil {
		return decodeNull(ids, false)
	}
	return in.Text
}

// items makes the items of inputs [first, end).
func (d *nullRequest) items(first, end int) ([]batch.Item, error) {
	items, limit := make([]batch.Item, end-first), d.use.Limit(d.model)
	if n := d.options.MaxSeqLength; n > 0 {
		limit = min(limit, n)
	}
	more := int64(0)
	for i := range items {
		in := &d.req.Inputs[first+i]
		fault, n := nulldev.ParseFault(in.Text), nulldev.Tokens(in.Text)
		switch {
		case in.Tokens() != nil:
			n = len(in.Tokens())
		case in.Second() != nil:
			n += nulldev.Tokens(*in.Second())
		case d.req.Op == Score:
			if fault.Kind == nulldev.None {
				fault = nulldev.ParseFault(d.req.Query.Text)
			}
			n += nulldev.Tokens(d.req.Query.Text)
			d.special += 4
		}
		n = max(2, min(n, limit))
		d.reader.tokens += n
		ids := make([]int32, n)
		model.NullIDs(ids, fault)
		items[i] = batch.Item{Inputs: batch.Inputs{IDs: ids}, Index: i}
		if d.vectors != nil {
			more += d.vectors.moreNull(n, fault)
		}
	}
	if more > 0 {
		return items, d.hold(more, end)
	}
	return items, nil
}

// nullSparseBytes bounds the bytes of a sparse row of the null device.
const nullSparseBytes = 16 * 8

// moreNull returns the bytes of an item's result that are not held yet.
func (e *encoding) moreNull(tokens int, f nulldev.Fault) (n int64) {
	if e.outputs.multi {
		n += int64(tokens) * int64(e.forms.rows.bytes(e.forms.tokenDims))
	}
	if e.outputs.sparse {
		n += nullSparseBytes
	}
	if f.Kind == nulldev.Big {
		n += int64(f.Bytes)
	}
	return n
}

// encode makes the vectors of input i.
func (d *nullRequest) encode(i int) error {
	e, id, text, role := d.vectors, d.model.ID, d.text(i), nulldev.Document
	if d.query {
		role = nulldev.Query
	}
	f, out := &e.forms, &d.result
	if out.Rows != nil {
		dims := f.dims
		if fault := nulldev.ParseFault(d.req.Inputs[i].Text); fault.Kind == nulldev.Big {
			dims = fault.Bytes * 8 / f.rows.bits
		}
		out.Rows[i] = f.rows.of(nulldev.Dense(id, role, text, dims))
	}
	if out.Sparse != nil {
		columns, weights := nulldev.Sparse(id, role, text, f.vocab)
		s := &out.Sparse[i]
		for _, c := range columns {
			s.Columns = binary.LittleEndian.AppendUint32(s.Columns, uint32(c))
		}
		s.Values = f.weights.of(weights)
	}
	if out.Multi != nil {
		rows := max(2, min(nulldev.Tokens(text), d.use.Limit(d.model)))
		m := &out.Multi[i]
		m.Rows = rows
		for _, row := range splitRows(nulldev.Multi(id, role, text, rows, f.tokenDims), f.tokenDims) {
			m.Data = append(m.Data, f.rows.of(row)...)
		}
	}
	return nil
}

// splitRows cuts numbers into rows of dims each.
func splitRows(numbers []float32, dims int) (rows [][]float32) {
	for ; len(numbers) > 0; numbers = numbers[dims:] {
		rows = append(rows, numbers[:dims])
	}
	return rows
}

// of returns a row of numbers in [-1, 1) in this form, little-endian.
func (f outputForm) of(row []float32) []byte {
	out := make([]byte, 0, f.bytes(len(row)))
	for i, x := range row {
		switch {
		case f.bits == 1:
			if i%8 == 0 {
				out = append(out, 0)
			}
			if x > 0 {
				out[i/8] |= 0x80 >> (i % 8)
			}
		case f.element == api.Float16:
			out = binary.LittleEndian.AppendUint16(out, half.FromFloat32(x))
		case f.element == api.Int8:
			out = append(out, byte(int8(math.Round(float64(x)*127))))
		case f.element == api.Uint8:
			out = append(out, byte(128+math.Round(float64(x)*127)))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out
}

func (d *nullRequest) score(i int) error {
	d.result.Scores[i] = nulldev.Score(d.model.ID, d.req.Query.Text, d.req.Inputs[i].Text)
	return nil
}

// extract gives input i the request's labels, or the model's own that the request wants, by score.
// A family without classes finds one entity: the whole text.
func (d *nullRequest) extract(i int) error {
	text := d.text(i)
	if d.family.extract.classes == nil {
		label := nulldev.Labels[0]
		d.result.Found[i].Entities = []api.Entity{{
			Text: text, Label: label, Score: nulldev.Label(d.model.ID, text, label),
			End: utf8.RuneCountInString(text),
		}}
		return nil
	}
	labels := nulldev.Labels
	if x := d.family.extract; x.check != nil || x.ready != nil { // it needs labels
		labels = d.req.Labels
	}
	var scores []float64
	for _, l := range labels {
		scores = append(scores, nulldev.Label(d.model.ID, text, l))
	}
	d.result.Found[i].Classes = slices.DeleteFunc(ranked(labels, scores, d.options.Raw),
		func(c api.Class) bool { return !d.wants(c.Label) })
	return nil
}

func (d *nullRequest) classify(i int) error {
	second := ""
	if s := d.req.Inputs[i].Second(); s != nil {
		second = *s
	}
	d.result.Classes[i] = probabilities(
		nulldev.Class(d.model.ID, d.req.Inputs[i].Text, second), d.req.RawScores)
	return nil
}

// tokenizeNull gives each text a token for each code point. hold is asked for their room.
func tokenizeNull(texts []string, addSpecial bool, hold Hold) ([][]api.Token, error) {
	out := make([][]api.Token, len(texts))
	for i, s := range texts {
		n := utf8.RuneCountInString(s) + 2
		if err := hold(listBytes+int64(n)*entryBytes, i+1); err != nil {
			return nil, err
		}
		list := make([]api.Token, 0, n)
		if addSpecial {
			list = append(list, api.Token{ID: nulldev.First, Text: "[FIRST]", Special: true})
		}
		for at, c := range s {
			start, stop := at, at+utf8.RuneLen(c)
			list = append(list, api.Token{ID: int(c), Text: string(c), Start: &start, Stop: &stop})
		}
		if addSpecial {
			list = append(list, api.Token{ID: nulldev.Last, Text: "[LAST]", Special: true})
		}
		out[i] = list
	}
	return out, nil
}

// detokenizeNull undoes tokenizeNull.
func detokenizeNull(ctx context.Context, ids [][]int32, skipSpecial bool, hold Hold) ([]string, error) {
	out := make([]string, len(ids))
	for i, list := range ids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, id := range list {
			if id < 0 || id > nulldev.Last {
				return nil, errs.Invalidf("ids",
					"Field 'ids[%d]': %d is not a token id of the null device", i, id)
			}
		}
		if err := hold(listBytes+int64(len(list))*utf8.UTFMax, i+1); err != nil {
			return nil, err
		}
		out[i] = decodeNull(list, skipSpecial)
	}
	return out, nil
}

func decodeNull(ids []int32, skipSpecial bool) string {
	b := make([]byte, 0, len(ids))
	for _, id := range ids {
		switch {
		case id < nulldev.First:
			b = utf8.AppendRune(b, id)
		case skipSpecial:
		case id == nulldev.First:
			b = append(b, "[FIRST]"...)
		default:
			b = append(b, "[LAST]"...)
		}
	}
	return string(b)
}
