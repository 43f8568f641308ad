package engine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ending tells a goroutine that a batch of a slot is done, and lets it wait parked. A goroutine
// that waited in C would keep a processor of Go's from idling: the runtime's monitor then looks
// after it every 20 µs, and each look takes the core from an executor for some microseconds.
//
// Each batch adds one to it and is waited for once. A nil ending does nothing.
type ending struct {
	eventfd *os.File
	number  int
	count   [8]byte
}

// newEventfd is replaced by a test.
var newEventfd = unix.Eventfd

// newEnding returns nil where the process may open no more files.
func newEnding() *ending {
	fd, err := newEventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return &ending{eventfd: os.NewFile(uintptr(fd), "end of a batch"), number: fd}
}

// fd returns the number for sie.h; 0 stands for none.
func (e *ending) fd() int {
	if e == nil {
		return 0
	}
	return e.number
}

// wait returns when the batch is done.
func (e *ending) wait() {
	for e != nil && e.number != 0 {
		_, err := e.eventfd.Read(e.count[:])
		if !errors.Is(err, unix.EAGAIN) {
			return // it was read, or is closed, which Slot.Close does after Wait
		}
		// Go does not poll the file, because the kernel had no memory for that when it was made.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(e.number), Events: unix.POLLIN}}, -1)
	}
}

// close frees it. Nothing is written to it once all batches have been waited for.
func (e *ending) close() {
	if e != nil {
		_ = e.eventfd.Close()
	}
}
