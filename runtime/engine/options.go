package engine

//lint:file-ignore ST1005 The errors begin with the name of a field.

import (
	"errors"
	"fmt"
)

// maxThreads is the most executors that a CPU device may have.
const maxThreads = 1024

// Validate reports everything that is wrong with the options, or nil.
func (o *Options) Validate() error {
	var all []error
	if o.Threads < 0 || o.Threads > maxThreads {
		all = append(all, fmt.Errorf("Threads must be between 0 and %d; got %d", maxThreads, o.Threads))
	}
	if o.Ordinal < 0 {
		all = append(all, fmt.Errorf("Ordinal must not be negative; got %d", o.Ordinal))
	}
	return errors.Join(all...)
}
