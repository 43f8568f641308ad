package api

import (
	"bytes"
	"math"
	"strconv"

	"github.com/sie-engine/sie/internal/errs"
)

// decoder holds the state of one request that is being decoded.
type decoder struct {
	src    source
	format Format
	lim    Limits
	values int   // see maxValues
	late   error // first broken rule of those that count only if the whole body is well formed

	// The containers being read: root, items, item, images, image. They are kept here to save an
	// allocation for each.
	stack [6]cursor
	depth int
}

// enter returns a cursor for the container whose head is v, valid until leave.
func (d *decoder) enter(v value) *cursor {
	c := &d.stack[d.depth]
	*c = v.cursor()
	d.depth++
	return c
}

func (d *decoder) leave() { d.depth-- }

// open checks the size of body and returns a decoder over it or a copy, which the request's strings
// alias.
func open(f Format, body []byte, lim Limits) (*decoder, error) {
	if n := lim.BodyLimit(); n >= 0 && len(body) > n {
		return nil, errs.BodyTooLarge(int64(n))
	}
	if !lim.OwnBody {
		body = bytes.Clone(body)
	}
	return &decoder{src: f.source(body), format: f, lim: lim}, nil
}

func bodyFormat(contentType string) Format {
	if IsMsgpack(contentType) {
		return Msgpack
	}
	return JSON
}

// close checks that nothing follows the root value and returns the postponed failure, if any.
func (d *decoder) close() error {
	if err := d.src.end(); err != nil {
		return err
	}
	return d.late
}

// postpone keeps the first of several failures.
func (d *decoder) postpone(err error) {
	if d.late == nil {
		d.late = err
	}
}

// count counts one allocated value of the request, and fails above maxValues.
func (d *decoder) count() error {
	if d.values++; d.values > maxValues {
		return plain("The request holds more than " + strconv.Itoa(maxValues) +
			" items, media, labels and lists; split it into smaller requests")
	}
	return nil
}

// want reads the next value and fails unless it is of an expected kind.
func (d *decoder) want(e expect) (value, error) {
	v, err := d.src.next(e)
	if err == nil && !e.has(v.kind) {
		got := kindNames[v.kind]
		if v.kind == kindNull {
			got = d.src.nullName()
		}
		err = mismatch(e, got)
	}
	return v, err
}

// str reads a string or null; ok is false for null.
func (d *decoder) str() (s string, ok bool, err error) {
	v, err := d.want(wantStrOrNull)
	if err != nil || v.kind == kindNull {
		return "", false, err
	}
	if err := checkUTF8(v.b); err != nil {
		return "", false, err
	}
	return text(v.b), true, nil
}

func (d *decoder) strPointer() (*string, error) {
	s, ok, err := d.str()
	if !ok {
		return nil, err
	}
	return &s, nil
}

// fields reads an object and calls field with each key. field must consume the value, with skip if
// the key is unknown. The path of an error of field gets the key. For a null, if e admits it, ok is
// false.
func (d *decoder) fields(e expect, field func(key string) error) (ok bool, err error) {
	v, err := d.want(e)
	if err != nil || v.kind == kindNull {
		return false, err
	}
	return true, d.entries(v, field)
}

// entries does the work of fields after the object's head was read.
func (d *decoder) entries(v value, field func(key string) error) error {
	c := d.enter(v)
	defer d.leave()
	for {
		ok, err := d.src.more(c)
		if err != nil || !ok {
			return err
		}
		k, err := d.src.key(c)
		if err != nil {
			return err
		}
		key := text(k)
		if err := field(key); err != nil {
			return at(err, "."+key)
		}
	}
}

// elements reads an array. It calls begin with a safe guess of the length, 0 if unknown, and then
// elem for each index. For a null, if e admits it, ok is false.
func (d *decoder) elements(e expect, begin func(n int), elem func(i int) error) (ok bool, err error) {
	v, err := d.want(e)
	if err != nil || v.kind == kindNull {
		return false, err
	}
	// A claimed length is used only up to the number of unread bytes and 4,096; beyond that the
	// caller's slice grows as elements come.
	begin(min(max(v.n, 0), d.left(), 4096))
	return true, d.list(v, func(i int) error {
		if err := d.count(); err != nil {
			return err
		}
		return elem(i)
	})
}

// list calls elem for each index of the array whose head is v; elem must consume the value. The
// path of an error of elem gets the index.
func (d *decoder) list(v value, elem func(i int) error) error {
	c := d.enter(v)
	defer d.leave()
	for i := 0; ; i++ {
		more, err := d.src.more(c)
		if err != nil || !more {
			return err
		}
		if err := elem(i); err != nil {
			return atIndex(err, i)
		}
	}
}

// left returns the number of unread bytes.
func (d *decoder) left() int {
	switch s := d.src.(type) {
	case *mpack:
		return len(s.b) - s.p
	case *jsonBody:
		return len(s.b) - s.p
	}
	return 0
}

// strings reads an array of strings or null. A null gives nil, an empty array an empty slice.
func (d *decoder) strings() ([]string, error) {
	var out []string
	ok, err := d.elements(wantArrayOrNull,
		func(n int) { out = make([]string, 0, n) },
		func(int) error {
			v, err := d.want(wantStr)
			if err == nil {
				err = checkUTF8(v.b)
			}
			if err != nil {
				return err
			}
			out = append(out, text(v.b))
			return nil
		})
	if !ok {
		return nil, err
	}
	return out, err
}

// free passes over a free-form object or null, and returns its bytes and the counts of walk.
func (d *decoder) free() (Raw, walk, error) {
	w, _, err := d.object(false)
	return w.raw, w.walk, err
}

// options reads a free-form object or null into Go values.
func (d *decoder) options() (Options, error) {
	_, m, err := d.object(true)
	return m, err
}

type freeForm struct {
	raw  Raw
	walk walk
}

func (d *decoder) object(build bool) (freeForm, map[string]any, error) {
	var f freeForm
	from := d.src.pos()
	v, err := d.want(wantObjectOrNull)
	if err != nil || v.kind == kindNull {
		return f, nil, err
	}
	f.walk = walk{build: build, field: "options", orders: orderedOption, maxValues: maxOptionValues, depth: 1,
		values: 1}
	var x any
	switch s := d.src.(type) { // the head is consumed: go on with the entries
	case *mpack:
		f.walk.size = s.p - from
		x, err = s.dict(&f.walk, 1, v.n)
	case *jsonBody:
		from = s.p - 1 // without white space
		x, err = s.dict(&f.walk, 1)
	}
	if err != nil {
		return f, nil, err
	}
	f.raw = Raw{Format: d.format, Data: d.src.span(from)}
	m, _ := x.(map[string]any)
	return f, m, nil
}

// flag reads a boolean or null; an integer counts as a boolean, as in Python.
func (d *decoder) flag() (*bool, error) {
	v, err := d.want(wantFlagOrNull)
	if err != nil || v.kind == kindNull {
		return nil, err
	}
	b := v.i != 0 || v.big
	return &b, nil
}

// number reads a finite number or null.
func (d *decoder) number() (*float64, error) {
	v, err := d.want(wantFloatOrNull)
	if err != nil || v.kind == kindNull {
		return nil, err
	}
	f := v.f
	if v.kind == kindInt && !v.big {
		f = float64(v.i)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, located("Expected a finite number")
	}
	return &f, nil
}

func missing(field string) error { return located("Object missing required field `" + field + "`") }
