package api

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// mpack reads a msgpack body.
type mpack struct {
	b []byte
	p int
}

func (s *mpack) pos() int             { return s.p }
func (s *mpack) span(from int) []byte { return s.b[from:s.p:s.p] }
func (s *mpack) nullName() string     { return "None" }

func (s *mpack) end() error {
	if s.p != len(s.b) {
		return plain("MessagePack data is malformed: trailing characters (byte " + strconv.Itoa(s.p) + ")")
	}
	return nil
}

// take consumes n bytes. n is the client's number and may be up to 2^32-1.
func (s *mpack) take(n int) ([]byte, error) {
	if n > len(s.b)-s.p {
		return nil, errTruncated()
	}
	b := s.b[s.p : s.p+n : s.p+n]
	s.p += n
	return b, nil
}

// uint consumes an n-byte big-endian integer.
func (s *mpack) uint(n int) (uint64, error) {
	b, err := s.take(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	}
	return binary.BigEndian.Uint64(b), nil
}

// head reads an opcode and the bytes that follow it: the value of a scalar, or the length of a
// payload or container into n.
func (s *mpack) head() (value, error) {
	if s.p >= len(s.b) {
		return value{}, errTruncated()
	}
	op := s.b[s.p]
	s.p++
	switch {
	case op <= 0x7f || op >= 0xe0:
		return value{kind: kindInt, i: int64(int8(op))}, nil
	case op <= 0x8f:
		return value{kind: kindObject, n: int(op & 0x0f)}, nil
	case op <= 0x9f:
		return value{kind: kindArray, n: int(op & 0x0f)}, nil
	case op <= 0xbf:
		return value{kind: kindStr, n: int(op & 0x1f)}, nil
	}
	switch op {
	case 0xc0:
		return value{kind: kindNull}, nil
	case 0xc2, 0xc3:
		return value{kind: kindBool, i: int64(op & 1)}, nil
	case 0xc4, 0xc5, 0xc6:
		return s.sized(kindBytes, 1<<(op-0xc4))
	case 0xc7, 0xc8, 0xc9:
		return s.sized(kindExt, 1<<(op-0xc7))
	case 0xca:
		u, err := s.uint(4)
		return value{kind: kindFloat, f: float64(math.Float32frombits(uint32(u)))}, err
	case 0xcb:
		u, err := s.uint(8)
		return value{kind: kindFloat, f: math.Float64frombits(u)}, err
	case 0xcc, 0xcd, 0xce, 0xcf:
		u, err := s.uint(1 << (op - 0xcc))
		return value{kind: kindInt, i: int64(u), big: u > math.MaxInt64, f: float64(u)}, err
	case 0xd0:
		u, err := s.uint(1)
		return value{kind: kindInt, i: int64(int8(u))}, err
	case 0xd1:
		u, err := s.uint(2)
		return value{kind: kindInt, i: int64(int16(u))}, err
	case 0xd2:
		u, err := s.uint(4)
		return value{kind: kindInt, i: int64(int32(u))}, err
	case 0xd3:
		u, err := s.uint(8)
		return value{kind: kindInt, i: int64(u)}, err
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return value{kind: kindExt, n: 1 << (op - 0xd4)}, nil
	case 0xd9, 0xda, 0xdb:
		return s.sized(kindStr, 1<<(op-0xd9))
	case 0xdc, 0xdd:
		return s.sized(kindArray, 2<<(op-0xdc))
	case 0xde, 0xdf:
		return s.sized(kindObject, 2<<(op-0xde))
	}
	return value{}, plain(
		fmt.Sprintf("MessagePack data is malformed: invalid opcode '\\x%02x' (byte %d)", op, s.p-1))
}

func (s *mpack) sized(k kind, width int) (value, error) {
	u, err := s.uint(width)
	return value{kind: k, n: int(u)}, err
}

func (s *mpack) next(expect) (value, error) {
	v, err := s.head()
	if err != nil {
		return v, err
	}
	switch v.kind {
	case kindStr, kindBytes:
		v.b, err = s.take(v.n)
	case kindExt: // its type byte comes before the payload
		if _, err = s.take(1); err == nil {
			v.b, err = s.take(v.n)
		}
	}
	return v, err
}

func (s *mpack) more(c *cursor) (bool, error) {
	if c.left == 0 {
		return false, nil
	}
	c.left--
	return true, nil
}

func (s *mpack) key(*cursor) ([]byte, error) {
	if s.p < len(s.b) && s.b[s.p] == 0xc1 {
		return nil, &bodyError{msg: "Expected `str`, got `unknown`", inKey: true}
	}
	v, err := s.head()
	if err != nil {
		return nil, err
	}
	if v.kind != kindStr {
		return nil, &bodyError{msg: "Expected `str`, got `" + kindNames[v.kind] + "`", inKey: true}
	}
	return s.take(v.n)
}

func (s *mpack) skip() error { return s.skipAt(0) }

func (s *mpack) skipAt(depth int) error {
	v, err := s.next(wantAny)
	if err != nil || (v.kind != kindArray && v.kind != kindObject) || v.n == 0 {
		return err
	}
	if depth++; depth > maxDepth {
		return errTooDeep()
	}
	for range v.n {
		if v.kind == kindObject {
			if err := s.skipAt(depth); err != nil {
				return err
			}
		}
		if err := s.skipAt(depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *mpack) tree(w *walk, depth int) (any, error) {
	from := s.p
	v, err := s.next(wantAny)
	if err != nil {
		return nil, err
	}
	if err := w.count(); err != nil {
		return nil, err
	}
	switch v.kind {
	case kindArray, kindObject:
		if depth++; depth > maxDepth {
			return nil, errTooDeep()
		}
		w.depth = max(w.depth, depth)
		w.size += s.p - from
		if v.kind == kindArray {
			return s.list(w, depth, v.n)
		}
		return s.dict(w, depth, v.n)
	case kindStr:
		if err := checkUTF8(v.b); err != nil {
			return nil, err
		}
	}
	w.size += s.p - from
	if !w.build {
		return nil, nil
	}
	return v.scalar(), nil
}

func (s *mpack) list(w *walk, depth, n int) (any, error) {
	var out []any
	if w.build {
		out = []any{}
	}
	for i := range n {
		x, err := s.tree(w, depth)
		if err != nil {
			return nil, atIndex(err, i)
		}
		if w.build {
			out = append(out, x)
		}
	}
	return out, nil
}

// dict reads the entries of a free-form object. The outermost object must have string keys. An
// inner one may have any key that a Python dictionary could have; keys that are not text are
// converted to text.
func (s *mpack) dict(w *walk, depth, n int) (any, error) {
	o := w.begin(depth)
	for range n {
		from := s.p
		k, err := s.next(wantAny)
		if err != nil {
			return nil, err
		}
		if depth == 1 && k.kind != kindStr {
			got := kindNames[k.kind]
			if k.kind == kindNull {
				got = s.nullName()
			}
			return nil, &bodyError{msg: "Expected `str`, got `" + got + "`", inKey: true}
		}
		if (k.kind == kindArray || k.kind == kindObject) && depth == maxDepth {
			return nil, errTooDeep()
		}
		switch k.kind {
		case kindStr:
			if err := checkUTF8(k.b); err != nil {
				return nil, err
			}
		case kindArray: // a tuple in Python
			if _, err := s.list(&walk{}, depth+1, k.n); err != nil {
				return nil, err
			}
		case kindObject:
			if _, err := s.dict(&walk{}, depth+1, k.n); err != nil {
				return nil, err
			}
			return nil, plain(
				"MessagePack data is malformed: map keys must be hashable (byte " + strconv.Itoa(s.p) + ")")
		}
		w.size += s.p - from
		err = o.put(depth, func() string { return keyText(k) },
			func() (any, error) { return s.tree(w, depth) })
		if err != nil {
			return nil, at(err, "[...]")
		}
	}
	return o.value(), nil
}

func keyText(k value) string {
	if k.kind == kindStr || k.kind == kindBytes {
		return strings.ToValidUTF8(string(k.b), "\ufffd") // byte strings need not be UTF-8
	}
	return fmt.Sprint(k.scalar())
}

// scalar returns v as nil, bool, int64, float64, string or []byte, copied out of the body. An
// integer outside int64 becomes a float64; an ext value becomes its payload.
func (v value) scalar() any {
	switch v.kind {
	case kindBool:
		return v.i != 0
	case kindInt:
		if v.big {
			return v.f
		}
		return v.i
	case kindFloat:
		return v.f
	case kindStr:
		return string(v.b)
	case kindBytes, kindExt:
		return append([]byte{}, v.b...)
	}
	return nil
}
