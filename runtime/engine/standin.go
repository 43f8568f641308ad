//go:build native && cuda && emulated

package engine

// #include <stdlib.h>
// int sie_standin_command(const char *command, char *answer, size_t size);
import "C"

import (
	"errors"
	"unsafe"
)

// StandIn runs a command of the stand-in for the CUDA driver and returns its answer. Commands such
// as "fail cuMemAlloc_v2 1 2" or "devices 2" are listed in csrc/cuda/standin/README.md. It is for
// tests; its build emulates the GPUs.
func StandIn(command string) (string, error) {
	text := C.CString(command)
	defer C.free(unsafe.Pointer(text))
	answer := (*C.char)(C.malloc(answerSize))
	defer C.free(unsafe.Pointer(answer))
	if C.sie_standin_command(text, answer, answerSize) != 0 {
		return "", errors.New(C.GoString(answer))
	}
	return C.GoString(answer), nil
}

const answerSize = 16384
