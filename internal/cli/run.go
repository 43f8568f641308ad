package cli

import (
	"errors"

	"github.com/alecthomas/kong"
)

// Checker is a command that checks its flags beyond their ranges, before it does anything else.
type Checker interface{ Check() error }

// Run checks the flags of the chosen command, returns all that is wrong with them at once, and
// otherwise runs it.
func Run(k *kong.Context) error {
	err := errors.Join(CheckRanges(k), CheckPaths(k))
	if c, ok := k.Selected().Target.Addr().Interface().(Checker); ok {
		err = errors.Join(err, c.Check())
	}
	if err != nil {
		return err
	}
	return k.Run()
}
