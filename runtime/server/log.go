package server

import (
	"strings"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
)

// field returns the request field that an error names. It leaves out what clients choose: option
// keys and places in lists.
func field(e *errs.Error) string {
	name := e.Param
	if i := strings.IndexAny(name, ".["); i >= 0 {
		name = name[:i]
	}
	return files.Clip(name, 32)
}
