//go:build !linux

package testrig

import "os/exec"

// DieWithParent does nothing on this system.
func DieWithParent(*exec.Cmd) {}
