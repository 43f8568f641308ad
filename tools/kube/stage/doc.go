// Package stage runs the programs of a cluster as processes of this machine, each on a free port
// and each from the binaries that the caller names, so that a test can restart, replace or mix
// them.
//
// Entry points: New, which makes the folder of a Cluster; Cluster.Config, Gateway and Worker, which
// start a program and wait for its port; Process, which ends one. Each process has a goroutine that
// waits for it; the kernel ends the processes when this one ends.
package stage
