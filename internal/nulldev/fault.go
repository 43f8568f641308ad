package nulldev

import (
	"strconv"
	"strings"
	"time"
)

// Kind is what a fault does.
type Kind uint8

// The kinds of faults. A fault works on the whole batch that holds its text.
const (
	None  Kind = iota
	Sleep      // !sleep=50ms: the batch takes so long
	Crash      // !crash: the process ends by SIGABRT
	OOM        // !oom: the device has too little memory for the batch
	Hang       // !hang: the batch never ends
	Big        // !big=40MiB: the text's dense vector has so many bytes
)

// The bounds of faults; what is above them is cut.
const (
	MaxSleep = 10 * time.Minute
	MaxBig   = 1 << 30
)

// Fault is what a text asks the null device to do.
type Fault struct {
	Kind  Kind
	Sleep time.Duration
	Bytes int
}

// ParseFault returns the fault that a text begins with, or none. The fault ends at the first space
// or at the end of the text; a text with a malformed fault has none.
func ParseFault(text string) Fault {
	if text == "" || text[0] != '!' {
		return Fault{}
	}
	word, _, _ := strings.Cut(text[1:], " ")
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "sleep":
		if d, err := time.ParseDuration(value); err == nil && d >= 0 {
			return Fault{Kind: Sleep, Sleep: min(d, MaxSleep)}
		}
	case "crash":
		return Fault{Kind: Crash}
	case "oom":
		return Fault{Kind: OOM}
	case "hang":
		return Fault{Kind: Hang}
	case "big":
		if n, ok := size(value); ok {
			return Fault{Kind: Big, Bytes: min(n, MaxBig)}
		}
	}
	return Fault{}
}

// size reads a number of bytes with the unit KiB, MiB or none.
func size(s string) (int, bool) {
	unit := 1
	if n, ok := strings.CutSuffix(s, "MiB"); ok {
		s, unit = n, 1<<20
	} else if n, ok := strings.CutSuffix(s, "KiB"); ok {
		s, unit = n, 1<<10
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n) * unit, err == nil
}
