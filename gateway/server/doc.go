// Package server is the HTTP server of a gateway. It mounts the inference routes of package
// inference over a Backend that its caller gives it, and serves what only a gateway has: the
// cluster's health and status sockets, the read side of the configuration, its pools, its metrics.
//
// Entry points: New, Serve, Look, Retire, Shutdown. Package httpd provides what surrounds the
// routes. The server starts no goroutines of its own beyond httpd's. All that it shows of the
// cluster comes from two snapshots, of the workers (package fleet) and of the configuration
// (Options.Config); it never asks a worker or the broker.
package server
