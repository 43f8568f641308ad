package api

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonString is a string literal whose escapes are known to be well formed.
type jsonString struct {
	raw     []byte // between the quotes; part of the body
	escaped bool
	ascii   bool // no byte of raw is above 0x7f
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, by the high bit of each byte, where w holds a quote, a backslash or a control
// character. Bits above the lowest mark may be wrong.
func special(w uint64) uint64 {
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & highs
}

// scanString reads a string literal at the current position. Two of its errors have other texts for
// skipped strings.
func (s *jsonBody) scanString(skip bool) (jsonString, error) {
	s.p++
	start := s.p
	var str jsonString
	var seen uint64
	for {
		for len(s.b)-s.p >= 8 {
			w := binary.LittleEndian.Uint64(s.b[s.p:])
			if m := special(w); m != 0 {
				n := bits.TrailingZeros64(m) / 8
				seen |= w & (1<<(8*n) - 1)
				s.p += n
				break
			}
			seen |= w
			s.p += 8
		}
		if s.p >= len(s.b) {
			return str, errTruncated()
		}
		switch c := s.b[s.p]; {
		case c == '"':
			str.raw = s.b[start:s.p:s.p]
			str.ascii = seen&highs == 0
			s.p++
			return str, nil
		case c == '\\':
			str.escaped = true
			if err := s.scanEscape(skip); err != nil {
				return str, err
			}
		case c < 0x20:
			return str, s.malformed("invalid character")
		default:
			seen |= uint64(c)
			s.p++
		}
	}
}

func (s *jsonBody) scanEscape(skip bool) error {
	s.p++
	if s.p >= len(s.b) {
		return errTruncated()
	}
	switch s.b[s.p] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.p++
		return nil
	case 'u':
		s.p++
	default:
		if skip {
			return s.malformed("invalid escaped character")
		}
		s.p++
		return s.malformed("invalid escape character in string")
	}
	r, err := s.scanHex()
	if err != nil || !utf16.IsSurrogate(r) {
		return err
	}
	if r >= 0xdc00 {
		return s.malformed("invalid utf-16 surrogate pair")
	}
	if len(s.b)-s.p < 6 {
		return errTruncated()
	}
	if s.b[s.p] != '\\' || s.b[s.p+1] != 'u' {
		if skip {
			return s.malformed("unexpected end of hex escape")
		}
		return s.malformed("unexpected end of escaped utf-16 surrogate pair")
	}
	s.p += 2
	low, err := s.scanHex()
	if err != nil {
		return err
	}
	if low < 0xdc00 || low > 0xdfff {
		return s.malformed("invalid utf-16 surrogate pair")
	}
	return nil
}

func (s *jsonBody) scanHex() (rune, error) {
	if len(s.b)-s.p < 4 {
		return 0, errTruncated()
	}
	var r rune
	for range 4 {
		d, ok := hexDigit(s.b[s.p])
		s.p++
		if !ok {
			return 0, s.malformed("invalid character in unicode escape")
		}
		r = r<<4 | d
	}
	return r, nil
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0'), true
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// resolve appends the text of the literal to dst. dst may be raw[:0], because an escape is never
// shorter than its text. Without escapes the result is raw itself.
func (j jsonString) resolve(dst []byte) []byte {
	if !j.escaped {
		return j.raw
	}
	for i := 0; i < len(j.raw); {
		c := j.raw[i]
		i++
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		c = j.raw[i]
		i++
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(j.raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(j.raw[i+2:]))
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		d, _ := hexDigit(c)
		r = r<<4 | d
	}
	return r
}
