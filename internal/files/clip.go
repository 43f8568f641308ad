package files

import "unicode/utf8"

// Clip returns s, or its first most bytes and "…" if it is longer. It cuts between two characters,
// which may be up to three bytes earlier.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && n > most-utf8.UTFMax+1 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
