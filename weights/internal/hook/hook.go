// Package hook lets tests act between two reads of a checkpoint file. Only tests set a function.
package hook

import "sync/atomic"

var read atomic.Pointer[func(path string, offset int64)]

// Read calls the function set by OnRead. Package weights calls it before each read of a checkpoint
// file.
func Read(path string, offset int64) {
	if f := read.Load(); f != nil {
		(*f)(path, offset)
	}
}

// OnRead sets the function that Read calls; nil removes it. f may be called from several goroutines
// at once.
func OnRead(f func(path string, offset int64)) {
	if f == nil {
		read.Store(nil)
		return
	}
	read.Store(&f)
}
