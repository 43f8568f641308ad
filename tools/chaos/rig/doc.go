// Package rig starts a real cluster as processes of this machine and does to it what a row asks:
// signals, partitions, slow networks, full and slow disks.
//
// Entry points: StartCluster, which runs `sie-gateway dev`; StartNodes, three NATS servers behind
// Proxies of their own; NodeCmd, the process of such a server, a hidden command of each program
// that starts some; Take, which counts what a cluster holds, to compare later.
//
// Each process has a goroutine that waits for it, each connection of a proxy has two that copy;
// Stop of whoever started them ends them.
package rig
