package testrig

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel end cmd, which is not yet started, when this process ends for any
// reason. A test binary that is killed, or that reaches its time limit, runs no clean-up.
func DieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
