package model

import (
	"syscall"
	"unsafe"
)

// dieBySignal ends the process by SIGABRT, whose handler is the kernel's again: no stack is
// printed, no deferred function runs, and the parent sees the signal.
func dieBySignal() {
	// the kernel's struct sigaction: all zero is SIG_DFL
	var standard [4]uintptr
	const maskBytes = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT),
		uintptr(unsafe.Pointer(&standard)), 0, maskBytes, 0, 0)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGABRT)
	select {} // the signal may reach another thread first
}
