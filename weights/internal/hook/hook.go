// Package hook lets tests act between two reads of a checkpoint file, and see which bytes are given
// up. Only tests set a function.
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

var release atomic.Pointer[func(path string, begin, end int64, did bool)]

// Release calls the function set by OnRelease. Package weights calls it when a tensor is released;
// did: its pages are given up.
func Release(path string, begin, end int64, did bool) {
	if f := release.Load(); f != nil {
		(*f)(path, begin, end, did)
	}
}

// OnRelease sets the function that Release calls, as OnRead does.
func OnRelease(f func(path string, begin, end int64, did bool)) {
	if f == nil {
		release.Store(nil)
		return
	}
	release.Store(&f)
}
