package words

import (
	"sort"
	"unicode/utf8"
)

// IsWord reports whether Python's \w matches a character: a letter, a number of any kind, or an
// underscore.
func IsWord(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || r == '_'
	}
	return in(wordRanges, r)
}

// IsSpace reports whether Python's \s matches a character.
func IsSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || '\t' <= r && r <= '\r' || 0x1c <= r && r <= 0x1f
	}
	return in(spaceRanges, r)
}

// IsDecimal reports whether Python's \d matches a character.
func IsDecimal(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return in(decimalRanges, r)
}

// in reports whether r lies in one of the ranges (first, last), which ascend.
func in(ranges [][2]int32, r rune) bool {
	i := sort.Search(len(ranges), func(i int) bool { return ranges[i][1] >= r })
	return i < len(ranges) && ranges[i][0] <= r
}
