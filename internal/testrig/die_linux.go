package testrig

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel end a command that has not been started with this process,
// whatever ends that: a test binary that is killed, or that ends at its time limit, runs no
// clean-up.
func DieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
