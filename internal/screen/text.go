package screen

import (
	"fmt"
	"strings"
)

// History is the number of points that a line of a board has.
const History = 60

// Push appends v to a line of at most History points; the oldest goes.
func Push(line []float64, v float64) []float64 {
	if len(line) == History {
		line = line[1:]
	}
	return append(line, v)
}

// Paint returns s in the colour of a code of ANSI terminals, such as 31 for red.
func Paint(code, s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }

// Spark draws the last n values in eighths of a block. The largest value is a whole block.
func Spark(values []float64, n int) string {
	values = values[max(len(values)-n, 0):]
	high := 0.0
	for _, v := range values {
		high = max(high, v)
	}
	var s strings.Builder
	for _, v := range values {
		level := 0
		if high > 0 {
			level = int(min(max(v/high, 0), 1)*7 + 0.5)
		}
		s.WriteRune([]rune("▁▂▃▄▅▆▇█")[level])
	}
	return s.String()
}

// Fit cuts s to n columns. Colour codes take no columns, and a cut ends the colour.
func Fit(s string, n int) string {
	columns, escape, coloured := 0, false, false
	for i, r := range s {
		switch {
		case r == '\x1b':
			escape, coloured = true, true
		case escape:
			escape = r != 'm'
		case columns == n:
			if coloured {
				return s[:i] + "\x1b[0m"
			}
			return s[:i]
		default:
			columns++
		}
	}
	return s
}

// Printable replaces control characters, so that a server's text cannot move the cursor.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// Size returns a number of bytes in KiB, MiB or GiB.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// Count returns a number in thousands or millions where it is large.
func Count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.1f", v)
}

// Uptime returns a number of seconds in the two units that fit.
func Uptime(seconds int) string {
	switch {
	case seconds >= 86400:
		return fmt.Sprintf("%d d %d h", seconds/86400, seconds%86400/3600)
	case seconds >= 3600:
		return fmt.Sprintf("%d h %d min", seconds/3600, seconds%3600/60)
	}
	return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
}
