package api

import (
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
)

// AppendEncodeResult appends it as the map that a msgpack answer has for it.
func AppendEncodeResult(dst []byte, it *EncodeItem) []byte {
	return appendEncodeItem(dst, mpackWriter{}, it)
}

// ReadEncodeResult reads a result that AppendEncodeResult wrote. Its arrays and its id alias raw,
// which must not change.
func ReadEncodeResult(raw []byte) (EncodeItem, error) {
	var it EncodeItem
	err := read(raw, "a result of encode", func(r *reader) {
		r.object(func(key string) {
			switch key {
			case "id":
				it.ID, it.HasID = r.str(), true
			case "dense":
				it.Dense = r.dense()
			case "sparse":
				it.Sparse = r.sparse()
			case "multivector":
				it.Multivector = r.multivector()
			default:
				r.skip()
			}
		})
	})
	if err != nil {
		return EncodeItem{}, err
	}
	return it, nil
}

func (r *reader) dense() *Dense {
	v, dtype := &Dense{}, ""
	r.object(func(key string) {
		switch key {
		case "dims":
			v.Dims = r.count()
		case "dtype":
			dtype = r.str()
		case "values":
			v.Values = r.array(-1)
		default:
			r.skip()
		}
	})
	r.check(&v.Values, dtype, v.Values.dtype(v.Dims))
	return v
}

func (r *reader) sparse() *Sparse {
	v, dtype := &Sparse{}, ""
	r.object(func(key string) {
		switch key {
		case "dims":
			if !r.null() {
				v.Dims = r.count()
			}
		case "dtype":
			dtype = r.str()
		case "indices":
			v.Indices = r.array(-1)
		case "values":
			v.Values = r.array(-1)
		default:
			r.skip()
		}
	})
	r.check(&v.Indices, "", "")
	r.check(&v.Values, dtype, v.Values.Type.String())
	if v.Indices.Cols != v.Values.Cols || v.Indices.Type != Int32 {
		r.fail("%d indices of %s for %d values", v.Indices.Cols, v.Indices.Type, v.Values.Cols)
	}
	return v
}

func (r *reader) multivector() *Multivector {
	v, dtype, tokens := &Multivector{}, "", 0
	r.object(func(key string) {
		switch key {
		case "token_dims":
			v.TokenDims = r.count()
		case "num_tokens":
			tokens = r.count()
		case "dtype":
			dtype = r.str()
		case "values":
			v.Values = r.array(2)
		default:
			r.skip()
		}
	})
	r.check(&v.Values, dtype, v.Values.dtype(v.TokenDims))
	if tokens != v.Values.Rows {
		r.fail("num_tokens is %d and values has %d rows", tokens, v.Values.Rows)
	}
	return v
}

// check checks that there is an array, and that it has the type that the result gives it.
func (r *reader) check(a *Array, got, want string) {
	switch {
	case a.Data == nil:
		r.fail("no array")
	case got != want:
		r.fail("dtype is %q for values of %s", clipped(got), want)
	}
}

// array reads a numpy array of one dimension (negative dims) or two.
func (r *reader) array(dims int) Array {
	a := Array{Rows: -1}
	typed, shaped, filled := false, false, false
	r.numpy(func(key string) {
		switch key {
		case "type":
			a.Type, typed = r.numType(), true
		case "shape":
			shaped = true
			if n := r.list(); n != max(dims, 1) {
				r.fail("an array of %d dimensions", n)
			} else if n == 2 {
				a.Rows, a.Cols = r.count(), r.count()
			} else {
				a.Cols = r.count()
			}
		case "data":
			a.Data, filled = r.bytes(), true
		default:
			r.skip()
		}
	})
	if r.err != nil {
		return a
	}
	rows := uint64(1)
	if a.Rows >= 0 {
		rows = uint64(a.Rows)
	}
	// count keeps both below 2^31, and a type has at most 4 bytes
	if !typed || !shaped || !filled || rows*uint64(a.Cols)*uint64(a.Type.Size()) != uint64(len(a.Data)) {
		r.fail("an array of %d x %d %s in %d bytes", rows, a.Cols, a.Type, len(a.Data))
	}
	return a
}

func (r *reader) numType() NumType {
	name := r.str()
	for t := range numTypes {
		if numTypes[t].wire == name {
			return NumType(t)
		}
	}
	r.fail("unknown type of numbers %q", clipped(name))
	return 0
}

// AppendExtractResult appends it as the map that a msgpack answer has for it.
func AppendExtractResult(dst []byte, it *ExtractItem) []byte {
	return appendExtractItem(dst, mpackWriter{}, it)
}

// ReadExtractResult reads a result that AppendExtractResult wrote. Its texts alias raw, which must
// not change. An error has its code, its message and the code's status.
func ReadExtractResult(raw []byte) (ExtractItem, error) {
	var it ExtractItem
	err := read(raw, "a result of extract", func(r *reader) {
		r.object(func(key string) {
			switch key {
			case "id":
				it.ID = r.str()
			case "entities":
				it.Entities = elements(r, (*reader).entity)
			case "relations":
				it.Relations = elements(r, (*reader).relation)
			case "classifications":
				it.Classifications = elements(r, (*reader).class)
			case "objects":
				it.Objects = elements(r, (*reader).region)
			case "data":
				it.Data = r.free()
			case "error":
				it.Error = r.itemError()
			default:
				r.skip()
			}
		})
	})
	if err != nil {
		return ExtractItem{}, err
	}
	return it, nil
}

func (r *reader) entity() (e Entity) {
	e.Start, e.End = -1, -1
	r.object(func(key string) {
		switch key {
		case "text":
			e.Text = r.str()
		case "label":
			e.Label = r.str()
		case "score":
			e.Score = r.float()
		case "start":
			if !r.null() {
				e.Start = r.count()
			}
		case "end":
			if !r.null() {
				e.End = r.count()
			}
		case "bbox":
			e.Box = r.box()
		default:
			r.skip()
		}
	})
	if (e.Start < 0) != (e.End < 0) {
		r.fail("an entity from %d to %d", e.Start, e.End)
	}
	return e
}

func (r *reader) relation() (e Relation) {
	r.object(func(key string) {
		switch key {
		case "head":
			e.Head = r.str()
		case "tail":
			e.Tail = r.str()
		case "relation":
			e.Relation = r.str()
		case "score":
			e.Score = r.float()
		default:
			r.skip()
		}
	})
	return e
}

func (r *reader) class() (e Class) {
	r.object(func(key string) {
		switch key {
		case "label":
			e.Label = r.str()
		case "score":
			e.Score = r.float()
		default:
			r.skip()
		}
	})
	return e
}

func (r *reader) region() (e Object) {
	r.object(func(key string) {
		switch key {
		case "label":
			e.Label = r.str()
		case "score":
			e.Score = r.float()
		case "bbox":
			e.Box = r.box()
		default:
			r.skip()
		}
	})
	return e
}

// box reads a list of numbers or null, which is nil.
func (r *reader) box() []int {
	if r.null() {
		return nil
	}
	return elements(r, func(r *reader) int { return int(r.int()) })
}

func (r *reader) itemError() *errs.Error {
	e := &errs.Error{}
	r.object(func(key string) {
		switch key {
		case "code":
			e.Code = errs.Code(r.str())
		case "message":
			e.Message = r.str()
		default:
			r.skip()
		}
	})
	if e.Code == "" {
		r.fail("an error without a code")
	}
	e.Status = 500 // of a code that is not known
	e.Status = e.Info().Status
	return e
}

// AppendScoreResult appends the score of one item, which is finite.
func AppendScoreResult(dst []byte, score float64) []byte { return msgp.AppendFloat64(dst, score) }

// AppendRankedScores appends scores as the list of a score answer, which is a result in the
// reference's form.
func AppendRankedScores(dst []byte, scores []Score) []byte {
	return appendScores(dst, mpackWriter{}, scores)
}

// ReadScoreResult reads a score, which must be finite.
func ReadScoreResult(raw []byte) (score float64, err error) {
	err = read(raw, "a score", func(r *reader) { score = r.float() })
	return score, err
}

// AppendClassifyResult appends the scores of one item's labels.
func AppendClassifyResult(dst []byte, scores []float64) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(scores)))
	for _, s := range scores {
		dst = msgp.AppendFloat64(dst, s)
	}
	return dst
}

// ReadClassifyResult reads the scores of one item's labels, each finite. The list is never nil.
func ReadClassifyResult(raw []byte) (scores []float64, err error) {
	err = read(raw, "a result of classify", func(r *reader) { scores = elements(r, (*reader).float) })
	return scores, err
}

// AppendTokens appends the tokens of one text, each as [id, text, special, start, stop].
func AppendTokens(dst []byte, tokens []Token) []byte {
	var w mpackWriter
	dst = w.list(dst, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		dst = w.int(w.list(dst, 5), int64(t.ID))
		dst = w.bool(w.str(dst, t.Text), t.Special)
		for _, at := range [...]*int{t.Start, t.Stop} {
			if at == nil {
				dst = w.null(dst)
			} else {
				dst = w.int(dst, int64(*at))
			}
		}
	}
	return dst
}

// ReadTokens reads the tokens of one text. Their texts alias raw, which must not change. The list
// is never nil.
func ReadTokens(raw []byte) (tokens []Token, err error) {
	err = read(raw, "tokens", func(r *reader) {
		tokens = elements(r, func(r *reader) (t Token) {
			if n := r.list(); n != 5 {
				r.fail("a token of %d values", n)
			}
			t.ID, t.Text, t.Special = r.count(), r.str(), r.bool()
			for _, at := range [...]**int{&t.Start, &t.Stop} {
				if !r.null() {
					n := r.count()
					*at = &n
				}
			}
			return t
		})
	})
	return tokens, err
}

// finite reports whether f is a number.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// read calls f with a reader of raw and returns the first error, with what it reads.
func read(raw []byte, what string, f func(*reader)) error {
	r := reader{src: mpack{b: raw}}
	f(&r)
	if r.err == nil {
		r.err = r.src.end()
	}
	if r.err != nil {
		return fmt.Errorf("api: %s: %w", what, r.err)
	}
	return nil
}
