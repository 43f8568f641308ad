package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of skipped JSON values (an index's free-form metadata).
const maxJSONDepth = 64

// scanner reads strict JSON from a byte slice, one token at a time. It replaces encoding/json,
// which keeps the last of two equal keys, matches keys without regard to case and replaces invalid
// text. Each of these lets two readers of one file see different tensors.
//
// The caller has checked that data is valid UTF-8. Errors carry the byte position and no file name.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

// space skips JSON white space.
func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// expect consumes the byte c after white space.
func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c || s.pos == len(s.data) {
		return s.unexpected(string(c))
	}
	s.pos++
	return nil
}

func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.data) {
		return s.errorf("want %s, found the end", want)
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return s.errorf("want %s, found %q", want, r)
}

// object reads an object and calls member for each key, with the scanner at the value. member must
// consume the value.
func (s *scanner) object(member func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.pos++
			continue
		}
		return s.expect('}')
	}
}

// naturals appends an array of at most limit integers in 0 … 2⁶³−1 to dst.
func (s *scanner) naturals(dst []int64, limit int) ([]int64, error) {
	if err := s.expect('['); err != nil {
		return nil, err
	}
	if s.peek() == ']' {
		s.pos++
		return dst, nil
	}
	for n := 0; ; n++ {
		if n == limit {
			return nil, s.errorf("more than %d numbers", limit)
		}
		v, err := s.natural()
		if err != nil {
			return nil, err
		}
		dst = append(dst, v)
		if s.peek() == ',' {
			s.pos++
			continue
		}
		return dst, s.expect(']')
	}
}

// natural reads an integer in 0 … 2⁶³−1 written with digits only, without a leading zero.
func (s *scanner) natural() (int64, error) {
	s.space()
	start := s.pos
	var v int64
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		d := int64(s.data[s.pos] - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, s.errorf("number larger than 2⁶³−1")
		}
		v = v*10 + d
		s.pos++
	}
	if s.pos == start {
		return 0, s.unexpected("a non-negative integer")
	}
	if s.data[start] == '0' && s.pos > start+1 {
		return 0, s.errorf("number with a leading zero")
	}
	if s.pos < len(s.data) && strings.IndexByte(".eE", s.data[s.pos]) >= 0 {
		return 0, s.unexpected("an integer")
	}
	return v, nil
}

// str reads a string at the current position and decodes its escapes.
func (s *scanner) str() (string, error) {
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		return "", s.unexpected("a string")
	}
	s.pos++
	start := s.pos
	var decoded []byte // nil until the first escape
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			text := s.data[start:s.pos]
			s.pos++
			if decoded != nil {
				return string(append(decoded, text...)), nil
			}
			return string(text), nil
		case c < 0x20:
			return "", s.errorf("control character %#02x in a string", c)
		case c != '\\':
			s.pos++
		default:
			decoded = append(decoded, s.data[start:s.pos]...)
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			decoded = utf8.AppendRune(decoded, r)
			start = s.pos
		}
	}
	return "", s.errorf("string without an end")
}

// escape reads one escape sequence at the current position. A lone surrogate is an error, because
// it has no UTF-8 form.
func (s *scanner) escape() (rune, error) {
	if s.pos+1 >= len(s.data) {
		return 0, s.errorf("string without an end")
	}
	c := s.data[s.pos+1]
	if at := strings.IndexByte(`"\/bfnrt`, c); at >= 0 {
		s.pos += 2
		return rune("\"\\/\b\f\n\r\t"[at]), nil
	}
	if c != 'u' {
		return 0, s.errorf("unknown escape")
	}
	r, err := s.hex4(s.pos + 2)
	if err != nil {
		return 0, err
	}
	s.pos += 6
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if s.pos+1 < len(s.data) && s.data[s.pos] == '\\' && s.data[s.pos+1] == 'u' {
		low, err := s.hex4(s.pos + 2)
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			s.pos += 6
			return pair, nil
		}
	}
	return 0, s.errorf("half of a surrogate pair")
}

func (s *scanner) hex4(at int) (rune, error) {
	if at+4 > len(s.data) {
		return 0, s.errorf("string without an end")
	}
	var r rune
	for _, c := range s.data[at : at+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.errorf("bad \\u escape")
		}
	}
	return r, nil
}

// skip consumes one value of any kind, nested at most maxJSONDepth deep.
func (s *scanner) skip(depth int) error {
	if depth > maxJSONDepth {
		return s.errorf("nested deeper than %d", maxJSONDepth)
	}
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{':
		return s.object(func(string) error { return s.skip(depth + 1) })
	case c == '[':
		s.pos++
		if s.peek() == ']' {
			s.pos++
			return nil
		}
		for {
			if err := s.skip(depth + 1); err != nil {
				return err
			}
			if s.peek() == ',' {
				s.pos++
				continue
			}
			return s.expect(']')
		}
	case c == '-' || '0' <= c && c <= '9':
		start := s.pos
		for s.pos < len(s.data) && strings.IndexByte("+-.eE0123456789", s.data[s.pos]) >= 0 {
			s.pos++
		}
		if !json.Valid(s.data[start:s.pos]) {
			return s.errorf("bad number")
		}
		return nil
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(string(s.data[s.pos:min(len(s.data), s.pos+len(word))]), word) {
			s.pos += len(word)
			return nil
		}
	}
	return s.unexpected("a value")
}

// end checks that only white space is left.
func (s *scanner) end() error {
	if s.space(); s.pos < len(s.data) {
		return s.unexpected("the end")
	}
	return nil
}
