//go:build !linux

package model

import "os"

// dieBySignal ends the process with the exit status that a shell shows for SIGABRT.
func dieBySignal() { os.Exit(134) }
