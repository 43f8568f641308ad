package confighash

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Charset selects how Canonical writes characters outside ASCII.
type Charset int

const (
	// UTF8 writes them unchanged.
	UTF8 Charset = iota
	// ASCII writes them as \uXXXX, surrogate pairs above U+FFFF.
	ASCII
)

// Canonical returns the JSON text of a value on which all components agree. Keys are sorted by
// bytes. There are no spaces. Only the characters that JSON requires are escaped, so <, > and & are
// not. Floats have the shortest form that reads back, always with a point or an exponent, as Python
// prints them. encoding/json differs in the last two points, so it is not used here.
//
// v is built of nil, bool, Go's integer and float types, string, []any, []string and
// map[string]any. Any other type is a programming error and panics. NaN and infinity panic too;
// this server's readers of configuration refuse them. Bytes that are not UTF-8 are written as
// U+FFFD.
func Canonical(v any, cs Charset) []byte {
	return appendValue(make([]byte, 0, 1024), v, cs)
}

func appendValue(b []byte, v any, cs Charset) []byte {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, x)
	case string:
		return appendString(b, x, cs)
	case int:
		return strconv.AppendInt(b, int64(x), 10)
	case int64:
		return strconv.AppendInt(b, x, 10)
	case int32:
		return strconv.AppendInt(b, int64(x), 10)
	case uint64:
		return strconv.AppendUint(b, x, 10)
	case uint32:
		return strconv.AppendUint(b, uint64(x), 10)
	case float64:
		return appendFloat(b, x)
	case float32:
		return appendFloat(b, float64(x))
	case []string:
		list := make([]any, len(x))
		for i, s := range x {
			list[i] = s
		}
		return appendValue(b, list, cs)
	case []any:
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, e, cs)
		}
		return append(b, ']')
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, k, cs)
			b = append(b, ':')
			b = appendValue(b, x[k], cs)
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("confighash: cannot encode %T", v))
}

// appendFloat appends the shortest decimal that reads back as f. It uses an exponent, of at least
// two digits, below 1e-4 and from 1e16 on.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic("confighash: cannot encode NaN or infinity")
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[start:], '.') {
		b = append(b, ".0"...)
	}
	return b
}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string, cs Charset) []byte {
	b = append(b, '"')
	for _, r := range s { // invalid bytes arrive as U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r < 0x20 || cs == ASCII && r > 0x7e && r <= 0xffff:
			b = appendUnit(b, r)
		case cs == ASCII && r > 0xffff:
			r -= 0x10000
			b = appendUnit(appendUnit(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}
