// Package accept takes connections of a listener through a shortage of files or memory, which the
// Accept of a net.Listener returns as an error: a server that stopped at one would stay deaf, or
// end, because for a moment it had too many connections.
package accept

import (
	"errors"
	"slices"
	"syscall"
	"time"
)

// pause is the wait after an error that may pass.
const pause = 50 * time.Millisecond

// passing are the errors that may pass. The kernel gives those of a single connection, too.
var passing = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // another connection must end first
	syscall.ECONNABORTED, syscall.EPERM, // the connection has gone, or a filter refuses it
	syscall.EPROTO, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
}

// Next returns the next connection that accept gives. After an error that may pass it tries again;
// failed is told of the first. It returns any other error, such as that of a closed listener.
func Next[C any](accept func() (C, error), failed func(error)) (C, error) {
	for told := false; ; told = true {
		c, err := accept()
		if err == nil || !slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }) {
			return c, err
		}
		if !told {
			failed(err)
		}
		time.Sleep(pause)
	}
}
