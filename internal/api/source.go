package api

import (
	"errors"
	"strconv"

	"github.com/sie-engine/sie/internal/errs"
)

// kind is the wire type of a value; messages use the names in kindNames.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindStr
	kindBytes
	kindArray
	kindObject
	kindExt
)

var kindNames = [...]string{"null", "bool", "int", "float", "str", "bytes", "array", "object", "ext"}

// expect is a set of acceptable kinds and its name in messages.
type expect struct {
	mask uint16
	text string
}

func (e expect) has(k kind) bool { return e.mask>>k&1 != 0 }

var (
	wantAny          = expect{1<<9 - 1, "any"}
	wantStr          = expect{1 << kindStr, "str"}
	wantStrOrNull    = expect{1<<kindStr | 1<<kindNull, "str | null"}
	wantBytes        = expect{1 << kindBytes, "bytes"}
	wantIntOrNull    = expect{1<<kindInt | 1<<kindNull, "int | null"}
	wantFloatOrNull  = expect{1<<kindFloat | 1<<kindInt | 1<<kindNull, "float | null"}
	wantFlagOrNull   = expect{1<<kindBool | 1<<kindInt | 1<<kindNull, "bool | null"}
	wantArray        = expect{1 << kindArray, "array"}
	wantArrayOrNull  = expect{1<<kindArray | 1<<kindNull, "array | null"}
	wantObject       = expect{1 << kindObject, "object"}
	wantObjectOrNull = expect{1<<kindObject | 1<<kindNull, "object | null"}
	// An image is an object. A bare byte string, which the TypeScript SDK sends, is accepted too.
	wantImage = expect{1<<kindObject | 1<<kindBytes, "object"}
)

// value is a scalar, or the head of a container, whose elements follow.
type value struct {
	kind kind
	big  bool   // an integer outside int64: i is meaningless, f approximates it
	n    int    // container: the number of elements or entries claimed; -1 when the format does not give it
	b    []byte // str, bytes: the payload; aliases the body, JSON escapes already resolved in place
	i    int64  // int, bool
	f    float64
}

// cursor walks one container.
type cursor struct {
	left    int  // elements still to come; -1: until the closing delimiter
	started bool // an element was read
	object  bool
	skip    bool // the content is ignored; some messages differ
}

func (v value) cursor() cursor { return cursor{left: v.n, object: v.kind == kindObject} }

// source reads a body from front to back. Its errors are *bodyError.
type source interface {
	// next reads a scalar or a container's head. want matters only if the format lacks a type: JSON
	// carries bytes as base64.
	next(want expect) (value, error)
	// more moves to the next element or entry of c and reports whether there is one.
	more(c *cursor) (bool, error)
	// key reads the key of an entry, which must be a string.
	key(c *cursor) ([]byte, error)
	// skip passes over one value and checks only its structure.
	skip() error
	// tree passes over one value and checks its structure, text and numbers. If w.build is set it
	// returns the value as Go values.
	tree(w *walk, depth int) (any, error)
	// span returns the bytes from a position to the current one.
	span(from int) []byte
	// pos returns the number of bytes consumed.
	pos() int
	// end returns an error unless the body is used up.
	end() error
	// nullName returns the name of a null in messages.
	nullName() string
}

// walk collects the counts and sizes of the values that tree passes over.
type walk struct {
	build     bool
	orders    string // build only: the outermost object's key whose value becomes an Ordered; "": none
	field     string // build only: the field named in the error about too many values
	inOrder   bool   // the value that is being read stands under that key
	maxValues int    // build only
	values    int    // values met, containers included
	depth     int    // deepest container, the outermost being 1
	size      int    // bytes the value takes in minimal msgpack
}

// count counts one value, and fails above maxValues if build is set.
func (w *walk) count() error {
	if w.values++; w.build && w.values > w.maxValues {
		return &bodyError{
			msg: "Field '" + w.field + "' must contain at most " + strconv.Itoa(w.maxValues) + " values",
		}
	}
	return nil
}

// entries collects those of one object. The zero value collects none.
type entries struct {
	walk    *walk
	keys    []string
	values  map[string]any
	ordered bool
}

// begin begins an object at that depth. It is ordered if the outermost object has it under
// w.orders.
func (w *walk) begin(depth int) (e entries) {
	if w.build {
		e = entries{walk: w, values: map[string]any{}, ordered: depth == 2 && w.inOrder}
	}
	return e
}

// put adds an entry whose value read reads.
func (e *entries) put(depth int, key func() string, read func() (any, error)) error {
	if e.values == nil {
		_, err := read()
		return err
	}
	k := key()
	if depth == 1 {
		e.walk.inOrder = e.walk.orders != "" && k == e.walk.orders
	}
	x, err := read()
	if err != nil {
		return err
	}
	if _, twice := e.values[k]; e.ordered && !twice {
		e.keys = append(e.keys, k)
	}
	e.values[k] = x
	return nil
}

// value is the object: nil where none is built, an Ordered or a map.
func (e *entries) value() any {
	switch {
	case e.values == nil:
		return nil
	case e.ordered:
		return Ordered{Keys: e.keys, Values: e.values}
	}
	return e.values
}

// bodyError is a rejection of a body. Each level of the decoder that returns it adds its place to
// the front of path.
type bodyError struct {
	msg     string
	path    string // place below the root $
	located bool   // the message names the place
	inKey   bool   // the place is a key of the object at path
	placed  bool   // the place is kept although the message does not name it
}

func (e *bodyError) Error() string {
	switch {
	case e.inKey:
		return e.msg + " - at `key` in `$" + e.path + "`"
	case e.located && e.path != "":
		return e.msg + " - at `$" + e.path + "`"
	}
	return e.msg
}

// at adds an outer path element to err. Errors about malformed bytes have no place.
func at(err error, elem string) error {
	if e, ok := errors.AsType[*bodyError](err); ok && (e.located || e.inKey || e.placed) {
		e.path = elem + e.path
	}
	return err
}

func atIndex(err error, i int) error { return at(err, "["+strconv.Itoa(i)+"]") }

// toAPI turns a decoder's error into an *errs.Error.
func toAPI(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*bodyError](err)
	if !ok {
		return err // already an *errs.Error
	}
	param := e.path
	if len(param) > 0 && param[0] == '.' {
		param = param[1:]
	}
	return errs.Invalid(param, e.Error())
}

func mismatch(e expect, got string) error {
	return &bodyError{msg: "Expected `" + e.text + "`, got `" + got + "`", located: true}
}

func located(msg string) error { return &bodyError{msg: msg, located: true} }

func plain(msg string) error { return &bodyError{msg: msg} }

func placed(path, msg string) error { return &bodyError{msg: msg, path: path, placed: true} }

func errTruncated() error { return plain("Input data was truncated") }

func errTooDeep() error {
	return plain(
		"Failed to parse request body: maximum recursion depth exceeded while deserializing an object")
}
