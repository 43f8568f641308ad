package weights

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// ErrNoWeights matches the error of Open for a directory without any checkpoint file.
var ErrNoWeights = errors.New("no weights")

// FormatError reports a checkpoint file that breaks a rule of the format. The file is damaged or
// hostile: reading it again gives the same error.
type FormatError struct {
	File   string // path of the file, as opened
	Tensor string // name of the tensor, or "" if none is concerned
	Field  string // header length, header, dtype, shape, data_offsets, weight_map, …
	Reason string // the broken rule, with the limit and the value found
}

func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	b.WriteString(": ")
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %s: ", quoted(e.Tensor))
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

// quoted returns a name from a file in printable form. It is escaped, so that it cannot break a
// terminal or a log line, and cut, because a hostile name may be 100 MB long.
func quoted(name string) string { return strconv.Quote(files.Clip(name, 120)) }
