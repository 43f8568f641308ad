package testrig

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// WithoutPipe runs work with a named pipe in place of each of paths, which it makes. It fails the
// test when a reader waits for the other end of one, and lets that reader go. work runs in a
// goroutine of its own.
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
			// Without a reader this fails; one that waits to open it is there until this end is
			// opened.
			if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				t.Errorf("%s is a named pipe, and somebody reads it", path)
				w.Close()
			}
		}
		time.Sleep(time.Millisecond)
	}
}
