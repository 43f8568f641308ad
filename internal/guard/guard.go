// Package guard turns a panic into an error: a fault of the program that one model's files, or one
// request, reached is no reason to end what serves others. Recovering helps only on the goroutine
// that panics, so whoever starts one for such work guards it.
//
// Entry points: [Run] for one function, [Each] for several at once, [About] for a log. The package
// imports no other package of the module; the goroutines of Each end before it returns.
package guard

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Panic is the error of a function that panicked.
type Panic struct {
	Value any
	Stack []byte // for the log
}

// Error returns the value without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Run returns the error of f, or a *Panic if f panics. What f had taken until then and had not
// deferred to give back is lost.
func Run(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicOf(v)
		}
	}()
	return f()
}

// panicOf returns the Panic of a recovered value. One that Each has raised again stays as it was.
func panicOf(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{v, debug.Stack()}
}

// Each calls f with 0 to n − 1, on a goroutine each, and returns when all have ended. If one of
// them panicked, Each then panics with its *Panic.
func Each(n int, f func(i int)) {
	failures := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failures[i] = Run(func() error { f(i); return nil }) })
	}
	all.Wait()
	for _, err := range failures {
		if err != nil {
			panic(err)
		}
	}
}

// About returns what a log says of an error: the error and, of a *Panic, its stack.
func About(err error) []any {
	about := []any{"error", err}
	var p *Panic
	if errors.As(err, &p) {
		about = append(about, "stack", string(p.Stack))
	}
	return about
}
