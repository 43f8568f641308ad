package files

import "unicode/utf8"

// Clip returns s, or its first limit bytes and "…" if it is longer. It cuts between two characters,
// which may be up to three bytes earlier.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := limit
	for n > 0 && n > limit-utf8.UTFMax+1 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
