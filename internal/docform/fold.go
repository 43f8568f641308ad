package docform

import "unicode/utf8"

// foldAt is the length, in bytes, from which on a line is broken within a text. A line of a
// document has at most 8 KiB; a prompt or a template may have 16 KiB.
const foldAt = 4 << 10

// Fold returns YAML whose texts are all quoted as JSON quotes them, or by escapes of YAML, with
// long texts on several lines. YAML joins them: a backslash ends each but the last, and what a line
// is indented by does not count.
func Fold(src []byte) []byte {
	if !long(src) {
		return src
	}
	out := make([]byte, 0, len(src)+len(src)/1024)
	column, inText := 0, false
	for len(src) > 0 {
		n := 1
		switch {
		case src[0] == '"':
			inText = !inText
		case inText && column >= foldAt:
			out, column = append(out, "\\\n "...), 1
			if src[0] == ' ' { // it would be an indent
				out = append(out, '\\')
			}
			fallthrough
		default:
			n = unit(src, inText)
		}
		if src[0] == '\n' {
			column = 0
		} else {
			column += n
		}
		out, src = append(out, src[:n]...), src[n:]
	}
	return out
}

// long reports whether a line has more than foldAt bytes.
func long(src []byte) bool {
	column := 0
	for _, c := range src {
		if column++; c == '\n' {
			column = 0
		}
		if column > foldAt {
			return true
		}
	}
	return false
}

// unit returns how many bytes at the start of src belong together: those of a character or an
// escape.
func unit(src []byte, inText bool) int {
	n := 1
	if inText && src[0] == '\\' && len(src) > 1 {
		n = map[byte]int{'x': len(`\x00`), 'u': len(`\u0000`)}[src[1]]
		n = max(n, len(`\n`))
	} else if src[0] >= utf8.RuneSelf {
		_, n = utf8.DecodeRune(src)
	}
	return min(n, len(src))
}
