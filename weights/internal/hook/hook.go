// Package hook lets tests act between two reads of a checkpoint file. Nothing outside tests sets a
// function.
package hook

import "sync/atomic"

var read atomic.Pointer[func(path string, offset int64)]

// Read is called before each read of a checkpoint file.
func Read(path string, offset int64) {
	if f := read.Load(); f != nil {
		(*f)(path, offset)
	}
}

// OnRead makes f what Read calls; nil: nothing. f may be called from several goroutines at once.
func OnRead(f func(path string, offset int64)) {
	if f == nil {
		read.Store(nil)
		return
	}
	read.Store(&f)
}
