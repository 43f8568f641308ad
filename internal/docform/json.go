package docform

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// OfJSON returns JSON as a document: each value has a line, with this indent for each level, and a
// long text several. What is nested deeply grows with the square of its depth by an indent, so text
// whose depth nobody has checked gets none. A text that is no JSON stays as it is, to be refused by
// who reads it.
func OfJSON(text []byte, indent string) []byte {
	if !json.Valid(text) {
		return text
	}
	var out bytes.Buffer
	if err := json.Indent(&out, asYAML(text), "", indent); err != nil {
		return text
	}
	return Fold(out.Bytes())
}

// asYAML returns valid JSON as the YAML that documents are: a character that JSON escapes as a
// surrogate pair stands for itself, and 1e3 is 1.0e3, because without a point it is a text there.
func asYAML(text []byte) []byte {
	out := make([]byte, 0, len(text))
	inText := false
	for len(text) > 0 {
		n := 1 // bytes that stay as they are
		switch c := text[0]; {
		case inText && c == '\\':
			if r := surrogates(text); r != utf8.RuneError {
				out, text = utf8.AppendRune(out, r), text[pairBytes:]
				continue
			}
			n = 2 // an escaped quote ends no text
		case c == '"':
			inText = !inText
		case !inText && (c == '-' || c >= '0' && c <= '9'):
			n = len(text) - len(bytes.TrimLeft(text, "+-.eE0123456789"))
			e := bytes.IndexAny(text[:n], "eE")
			if e > 0 && bytes.IndexByte(text[:n], '.') < 0 {
				out = append(append(out, text[:e]...), ".0"...)
				text, n = text[e:], n-e
			}
		}
		out, text = append(out, text[:n]...), text[n:]
	}
	return out
}

const pairBytes = len(`\ud83d\ude00`)

// surrogates returns the character of an escaped surrogate pair at the start of a text, or
// utf8.RuneError.
func surrogates(text []byte) rune {
	if len(text) < pairBytes || text[1] != 'u' || text[6] != '\\' || text[7] != 'u' {
		return utf8.RuneError
	}
	high, err := strconv.ParseUint(string(text[2:6]), 16, 32)
	low, lowErr := strconv.ParseUint(string(text[8:12]), 16, 32)
	if err != nil || lowErr != nil {
		return utf8.RuneError
	}
	return utf16.DecodeRune(rune(high), rune(low))
}
