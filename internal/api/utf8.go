package api

import (
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// text returns b as a string without copying. b must not change afterwards.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// checkUTF8 returns the error of Python's decoder if b is not UTF-8. Encoded surrogates are not
// UTF-8.
func checkUTF8(b []byte) error {
	if utf8.Valid(b) {
		return nil
	}
	at, n, why := badUTF8(b)
	const prefix = "Failed to parse request body: 'utf-8' codec can't decode "
	if n == 1 {
		return plain(fmt.Sprintf(prefix+"byte 0x%02x in position %d: %s", b[at], at, why))
	}
	return plain(fmt.Sprintf(prefix+"bytes in position %d-%d: %s", at, at+n-1, why))
}

// badUTF8 finds the first ill-formed sequence of b: where it starts, how many bytes belong to it
// (the longest prefix of a valid sequence, at least one), and why it is wrong.
func badUTF8(b []byte) (pos, n int, why string) {
	for pos < len(b) {
		if _, size := utf8.DecodeRune(b[pos:]); size > 1 || b[pos] < utf8.RuneSelf {
			pos += size
			continue
		}
		break
	}
	c := b[pos]
	lo, hi, need := byte(0x80), byte(0xbf), 0
	switch {
	case c < 0xc2 || c > 0xf4:
		return pos, 1, "invalid start byte"
	case c < 0xe0:
		need = 1
	case c < 0xf0:
		need = 2
	default:
		need = 3
	}
	switch c {
	case 0xe0:
		lo = 0xa0
	case 0xed:
		hi = 0x9f
	case 0xf0:
		lo = 0x90
	case 0xf4:
		hi = 0x8f
	}
	for n = 1; n <= need; n++ {
		if pos+n == len(b) {
			return pos, n, "unexpected end of data"
		}
		if x := b[pos+n]; x < lo || x > hi {
			break
		}
		lo, hi = 0x80, 0xbf
	}
	return pos, n, "invalid continuation byte"
}
