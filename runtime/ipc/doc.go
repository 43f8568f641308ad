// Package ipc is the entrance of a sidecar: it serves the methods of internal/ipc over a Unix
// socket and answers slices of requests with the models of this process.
//
// Entry points: Listen, which makes the socket; New and Server.Serve; Server.Beating, which
// readiness may ask; Configs, which holds the models that a sidecar adds. A slice becomes one
// request of internal/api and goes through runtime/service, as a request of HTTP does: it is
// admitted by the service's gate with its bytes reserved, has its own deadline, and is cancelled by
// itself. A connection that ends cancels its slices.
//
// Goroutines: one that accepts; a reader and a writer for each connection; one for each call, and
// one for each slice that runs. All bounds are in Options. Close ends them and waits.
package ipc
