package registry

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error of a load whose function panicked: a fault of the program that one model's
// files reached, and no reason to end what serves others.
type Panic struct {
	Value any
	Stack []byte // for the log
}

// Error returns the value without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard returns the error of f, or a *Panic if f panics. What f had taken until then and had not
// deferred to give back is lost.
func Guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, debug.Stack()}
		}
	}()
	return f()
}
