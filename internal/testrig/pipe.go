package testrig

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// WithoutPipe runs work while each of paths is a named pipe, which it makes in place of the file.
// It fails the test if a reader waits for the other end of a pipe, and releases that reader. work
// runs in its own goroutine.
func WithoutPipe(t testing.TB, work func(), paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); work() }()
	for {
		select {
		case <-done:
			return
		default:
		}
		for _, path := range paths {
			// This fails without a reader. A reader that waits to open the pipe waits until this
			// end is opened.
			if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				t.Errorf("%s is a named pipe, and somebody reads it", path)
				w.Close()
			}
		}
		time.Sleep(time.Millisecond)
	}
}
