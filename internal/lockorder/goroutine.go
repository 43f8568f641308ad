//go:build lockcheck && !amd64

package lockorder

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine returns the number of the calling goroutine, from the first line of its stack:
// "goroutine 7 [running]:".
func goroutine() uintptr {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	n, err := strconv.ParseUint(string(line[:bytes.IndexByte(line, ' ')]), 10, 64)
	if err != nil {
		panic("lockorder: the runtime writes stacks in another way")
	}
	return uintptr(n)
}
