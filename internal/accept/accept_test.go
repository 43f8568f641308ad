package accept

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// fails returns the error of a listener whose Accept fails so.
func fails(e syscall.Errno) error {
	return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", e)}
}

// A shortage holds up connections and loses none; it is told once, until a connection comes. An
// error that stays is returned.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := &net.OpError{Op: "accept", Net: "unix", Err: net.ErrClosed}
		answers := []error{nil, fails(syscall.EMFILE), fails(syscall.ENFILE), nil,
			fails(syscall.ECONNABORTED), nil, fails(syscall.ENOMEM), closed, fails(syscall.EBADF),
			os.ErrDeadlineExceeded}
		n, told := 0, 0
		next := func() (int, error) {
			return Next(func() (int, error) { n++; return n, answers[n-1] }, func(error) { told++ })
		}
		for _, want := range []struct {
			n, told int
			err     error
		}{{1, 0, nil}, {4, 1, nil}, {6, 2, nil}, {8, 3, net.ErrClosed}, {9, 3, syscall.EBADF},
			{10, 3, os.ErrDeadlineExceeded}} {
			c, err := next()
			if c != want.n || told != want.told || !errors.Is(err, want.err) {
				t.Errorf("connection %d, told %d times: %v; want %+v", c, told, err, want)
			}
		}
	})
}
