package api

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"
)

// jsonBody reads a JSON body. It resolves string escapes in place, so it owns its buffer.
type jsonBody struct {
	b []byte
	p int
}

func (s *jsonBody) pos() int             { return s.p }
func (s *jsonBody) span(from int) []byte { return s.b[from:s.p:s.p] }
func (s *jsonBody) nullName() string     { return "null" }

func (s *jsonBody) malformed(why string) error {
	return plain("JSON is malformed: " + why + " (byte " + strconv.Itoa(s.p) + ")")
}

// peek skips white space and returns the next byte without consuming it.
func (s *jsonBody) peek() (byte, error) {
	for ; s.p < len(s.b); s.p++ {
		switch c := s.b[s.p]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c, nil
		}
	}
	return 0, errTruncated()
}

func (s *jsonBody) end() error {
	if _, err := s.peek(); err == nil {
		s.p++ // the reference's position includes the offending byte
		return s.malformed("trailing characters")
	}
	return nil
}

func (s *jsonBody) next(want expect) (value, error) {
	c, err := s.peek()
	if err != nil {
		return value{}, err
	}
	switch c {
	case 'n':
		return value{kind: kindNull}, s.word("null")
	case 't':
		return value{kind: kindBool, i: 1}, s.word("true")
	case 'f':
		return value{kind: kindBool}, s.word("false")
	case '[':
		s.p++
		return value{kind: kindArray, n: -1}, nil
	case '{':
		s.p++
		return value{kind: kindObject, n: -1}, nil
	case '"':
		str, err := s.scanString(false)
		if err != nil {
			return value{}, err
		}
		v := value{kind: kindStr, b: str.resolve(str.raw[:0])}
		if want.has(kindBytes) && !want.has(kindStr) { // JSON carries bytes as base64
			v.kind = kindBytes
			v.b, err = decodeBase64(v.b)
		}
		return v, err
	}
	return s.number(false)
}

// word consumes a literal whose first byte is known to match.
func (s *jsonBody) word(w string) error {
	if len(s.b)-s.p < len(w) {
		return errTruncated()
	}
	ok := string(s.b[s.p:s.p+len(w)]) == w
	s.p += len(w)
	if !ok {
		return s.malformed("invalid character")
	}
	return nil
}

// number reads a number. With skip it checks only the syntax.
func (s *jsonBody) number(skip bool) (value, error) {
	start, float := s.p, false
	if s.b[s.p] == '-' {
		if s.p++; s.p == len(s.b) && !skip {
			return value{}, s.malformed("invalid number")
		}
	}
	digits := s.digits()
	switch {
	case digits == 0:
		return value{}, s.malformed("invalid character")
	case digits > 1 && s.b[s.p-digits] == '0':
		s.p -= digits - 1
		return value{}, s.malformed("invalid number")
	}
	if s.byteIs('.') {
		s.p++
		float = true
		if s.digits() == 0 {
			return value{}, s.malformed("invalid number")
		}
	}
	if s.byteIs('e') || s.byteIs('E') {
		s.p++
		float = true
		if s.byteIs('+') || s.byteIs('-') {
			s.p++
		}
		if s.digits() == 0 {
			return value{}, s.malformed("invalid number")
		}
	}
	if skip {
		return value{}, nil
	}
	num := text(s.b[start:s.p])
	if float {
		f, _ := strconv.ParseFloat(num, 64) // the syntax is valid; a value out of range gives ±Inf
		if math.IsInf(f, 0) {
			return value{}, located("Number out of range")
		}
		return value{kind: kindFloat, f: f}, nil
	}
	if i, err := strconv.ParseInt(num, 10, 64); err == nil {
		return value{kind: kindInt, i: i}, nil
	}
	f, _ := strconv.ParseFloat(num, 64)
	if _, err := strconv.ParseUint(num, 10, 64); err == nil {
		return value{kind: kindInt, big: true, f: f}, nil
	}
	return value{kind: kindFloat, f: f}, nil // wider than 64 bits: a float, as in the reference
}

func (s *jsonBody) digits() int {
	start := s.p
	for s.p < len(s.b) && s.b[s.p]-'0' <= 9 {
		s.p++
	}
	return s.p - start
}

func (s *jsonBody) byteIs(c byte) bool { return s.p < len(s.b) && s.b[s.p] == c }

func (s *jsonBody) more(c *cursor) (bool, error) {
	closing, wrong, trailing := byte(']'), "expected ',' or ']'", "trailing comma in array"
	if c.object {
		closing, wrong, trailing = '}', "expected ',' or '}'", "trailing comma in object"
	}
	b, err := s.peek()
	switch {
	case err != nil:
		return false, err
	case b == closing:
		s.p++
		return false, nil
	case !c.started:
		c.started = true
		return true, nil
	case b != ',':
		return false, s.malformed(wrong)
	}
	s.p++
	if b, err = s.peek(); err != nil {
		return false, err
	}
	if b == closing {
		return false, s.malformed(trailing)
	}
	return true, nil
}

func (s *jsonBody) key(c *cursor) ([]byte, error) {
	str, err := s.keyString(c)
	if err != nil {
		return nil, err
	}
	return str.resolve(str.raw[:0]), nil
}

// keyString reads a key and the colon after it.
func (s *jsonBody) keyString(c *cursor) (jsonString, error) {
	if b, err := s.peek(); err != nil {
		return jsonString{}, err
	} else if b != '"' {
		if c.skip {
			return jsonString{}, s.malformed(`expected '"'`)
		}
		return jsonString{}, s.malformed("object keys must be strings")
	}
	str, err := s.scanString(c.skip)
	if err != nil {
		return str, err
	}
	b, err := s.peek()
	if err != nil {
		return str, err
	}
	if b != ':' {
		return str, s.malformed("expected ':'")
	}
	s.p++
	return str, nil
}

func (s *jsonBody) skip() error { return s.skipAt(0) }

func (s *jsonBody) skipAt(depth int) error {
	b, err := s.peek()
	if err != nil {
		return err
	}
	switch b {
	case 'n':
		return s.skipWord("null")
	case 't':
		return s.skipWord("true")
	case 'f':
		return s.skipWord("false")
	case '"':
		_, err := s.scanString(true)
		return err
	case '[', '{':
	default:
		_, err := s.number(true)
		return err
	}
	if depth++; depth > maxDepth {
		return errTooDeep()
	}
	s.p++
	c := cursor{left: -1, object: b == '{', skip: true}
	for {
		ok, err := s.more(&c)
		if err != nil || !ok {
			return err
		}
		if c.object {
			if _, err := s.keyString(&c); err != nil {
				return err
			}
		}
		if err := s.skipAt(depth); err != nil {
			return err
		}
	}
}

func (s *jsonBody) skipWord(w string) error {
	s.p++
	if len(s.b)-s.p < len(w)-1 {
		return errTruncated()
	}
	if string(s.b[s.p:s.p+len(w)-1]) != w[1:] {
		return s.malformed("invalid character")
	}
	s.p += len(w) - 1
	return nil
}

func (s *jsonBody) tree(w *walk, depth int) (any, error) {
	b, err := s.peek()
	if err != nil {
		return nil, err
	}
	if err := w.count(); err != nil {
		return nil, err
	}
	switch b {
	case '[', '{':
		s.p++
		if depth++; depth > maxDepth {
			return nil, errTooDeep()
		}
		w.depth = max(w.depth, depth)
		if b == '[' {
			return s.list(w, depth)
		}
		return s.dict(w, depth)
	case '"':
		str, err := s.textOf(w, &cursor{})
		if err != nil || !w.build {
			return nil, err
		}
		return string(str.resolve(nil)), nil
	}
	v, err := s.next(wantAny)
	if err != nil {
		return nil, err
	}
	w.size += v.packedSize()
	if !w.build {
		return nil, nil
	}
	return v.scalar(), nil
}

// textOf reads a string and checks that it is UTF-8. It does not change the body, because its bytes
// may be kept.
func (s *jsonBody) textOf(w *walk, c *cursor) (str jsonString, err error) {
	if c.object {
		str, err = s.keyString(c)
	} else {
		str, err = s.scanString(false)
	}
	if err != nil {
		return str, err
	}
	n := len(str.raw)
	if str.escaped {
		n = len(str.resolve(nil))
	}
	w.size += n + headerSize(n, 31, math.MaxUint8)
	// escapes are ASCII: the raw bytes are UTF-8 if and only if the text is
	if !str.ascii && !utf8.Valid(str.raw) {
		return str, checkUTF8(str.resolve(nil))
	}
	return str, nil
}

func (s *jsonBody) list(w *walk, depth int) (any, error) {
	var out []any
	if w.build {
		out = []any{}
	}
	c := cursor{left: -1}
	for i := 0; ; i++ {
		ok, err := s.more(&c)
		if err != nil {
			return nil, err
		}
		if !ok {
			w.size += headerSize(i, 15, 0)
			return out, nil
		}
		x, err := s.tree(w, depth)
		if err != nil {
			return nil, atIndex(err, i)
		}
		if w.build {
			out = append(out, x)
		}
	}
}

func (s *jsonBody) dict(w *walk, depth int) (any, error) {
	o := w.begin(depth)
	c := cursor{left: -1, object: true}
	for n := 0; ; n++ {
		ok, err := s.more(&c)
		if err != nil {
			return nil, err
		}
		if !ok {
			w.size += headerSize(n, 15, 0)
			return o.value(), nil
		}
		k, err := s.textOf(w, &c)
		if err != nil {
			return nil, err
		}
		err = o.put(depth, func() string { return string(k.resolve(nil)) },
			func() (any, error) { return s.tree(w, depth) })
		if err != nil {
			return nil, at(err, "[...]")
		}
	}
}

// headerSize returns the length of a msgpack header for n bytes or elements: one byte up to fix,
// two up to one (0: no such form), three up to 65535, five above.
func headerSize(n, fix, one int) int {
	switch {
	case n <= fix:
		return 1
	case n <= one:
		return 2
	case n <= math.MaxUint16:
		return 3
	}
	return 5
}

// packedSize returns the length of a scalar in minimal msgpack.
func (v value) packedSize() int {
	if v.kind == kindFloat || v.big {
		return 9
	}
	switch i := v.i; {
	case v.kind != kindInt, i >= -32 && i <= 127:
		return 1
	case i >= math.MinInt8 && i <= math.MaxUint8:
		return 2
	case i >= math.MinInt16 && i <= math.MaxUint16:
		return 3
	case i >= math.MinInt32 && i <= math.MaxUint32:
		return 5
	}
	return 9
}

func decodeBase64(b []byte) ([]byte, error) {
	const invalid = "Invalid base64 encoded string"
	if len(b)%4 != 0 {
		return nil, located(invalid)
	}
	for _, c := range b {
		if c == '\n' || c == '\r' { // the library would ignore them
			return nil, located(invalid)
		}
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(b)))
	n, err := base64.StdEncoding.Decode(out, b)
	if err != nil {
		return nil, located(invalid)
	}
	return out[:n:n], nil
}
