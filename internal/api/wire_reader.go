package api

import (
	"fmt"
	"math"
)

// maxResultValues bounds the values of a free-form object in a result.
const maxResultValues = 100_000

// reader reads a result that another component sent. It keeps its first error and returns zero
// values from then on, so its callers need not look at each.
type reader struct {
	src mpack
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format+" (byte %d)", append(args, r.src.p)...)
	}
}

// next reads a scalar or the head of a container of an expected kind.
func (r *reader) next(e expect) value {
	if r.err != nil {
		return value{}
	}
	v, err := r.src.next(e)
	if err == nil && !e.has(v.kind) {
		err = mismatch(e, kindNames[v.kind])
	}
	if err != nil {
		r.err = err
		return value{}
	}
	return v
}

func (r *reader) skip() {
	if r.err == nil {
		r.err = r.src.skip()
	}
}

// null reports whether a null is next, and consumes it.
func (r *reader) null() bool {
	if r.err == nil && r.src.p < len(r.src.b) && r.src.b[r.src.p] == 0xc0 {
		r.src.p++
		return true
	}
	return false
}

func (r *reader) str() string {
	v := r.next(wantStr)
	if r.err == nil {
		r.err = checkUTF8(v.b)
	}
	return text(v.b)
}

func (r *reader) bytes() []byte { return r.next(wantBytes).b }

var wantBool = expect{1 << kindBool, "bool"}

func (r *reader) bool() bool { return r.next(wantBool).i != 0 }

func (r *reader) int() int64 {
	v := r.next(wantToken)
	if v.big {
		r.fail("an integer above 2^63-1")
	}
	return v.i
}

// count reads an integer from 0 to 2^31-1.
func (r *reader) count() int {
	n := r.int()
	if n < 0 || n > math.MaxInt32 {
		r.fail("%d is not from 0 to %d", n, math.MaxInt32)
		return 0
	}
	return int(n)
}

var wantFloat = expect{1 << kindFloat, "float"}

// float reads a finite number.
func (r *reader) float() float64 {
	f := r.next(wantFloat).f
	if !finite(f) {
		r.fail("a number that is not finite")
		return 0
	}
	return f
}

// list reads the head of an array and returns its length.
func (r *reader) list() int { return r.next(wantArray).n }

// elements reads an array with elem, which must consume each element. The slice is never nil; it
// grows as elements come, whatever the array claims.
func elements[T any](r *reader, elem func(*reader) T) []T {
	n := r.list()
	out := make([]T, 0, min(n, len(r.src.b)-r.src.p, 1024))
	for range n {
		x := elem(r)
		if r.err != nil {
			break
		}
		out = append(out, x)
	}
	return out
}

// object reads a map and calls field with each key; field must consume the value.
func (r *reader) object(field func(key string)) {
	r.entries(wantStr, field)
}

// numpy reads a map whose keys are byte strings, as numpy's decoders want them.
func (r *reader) numpy(field func(key string)) {
	r.entries(wantBytes, field)
}

func (r *reader) entries(keys expect, field func(key string)) {
	n := r.next(wantObject).n
	for i := 0; i < n && r.err == nil; i++ {
		key := r.next(keys).b
		if r.err == nil {
			field(text(key))
		}
	}
}

// free reads an object of free form.
func (r *reader) free() map[string]any {
	if r.err != nil {
		return nil
	}
	x, err := r.src.tree(&walk{build: true, field: "data", maxValues: maxResultValues}, 0)
	m, ok := x.(map[string]any)
	switch {
	case err != nil:
		r.err = err
	case !ok:
		r.fail("data is not an object")
	}
	return m
}
