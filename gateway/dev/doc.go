// Package dev runs a whole cluster on one machine as real processes: NATS, sie-config, gateways,
// and workers that are each a sie-server and a sidecar.
//
// Entry points: New, which checks Options and takes the state directory; Cluster.Run, which starts
// everything in order of readiness, keeps it running and drains it when its context ends; Send,
// with which another process of the same user tells a running cluster to scale or to signal a
// process. DIR/cluster.json says what runs; it exists while the cluster is ready.
//
// Goroutines: one thread-locked that starts processes, so that they end with it; one for each
// process, one that copies its output to its log; one that writes cluster.json; one that accepts
// commands and one for each command (at most maxCommands). All end with Run.
package dev
