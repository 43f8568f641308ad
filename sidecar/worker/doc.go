// Package worker is the sidecar: it pulls the slices that its server may run, has them run, and
// tells their gateways, so that nothing is lost and nothing is answered twice.
//
// Entry points: New and Worker.Run. A core decides and keeps all state; it belongs to the goroutine
// of Run, does no I/O, and acts through an interface, so that tests drive it against a plain model.
// Everything else posts what happened to that goroutine: the subscriptions of the connection to
// NATS, the client of the server, and a goroutine for each payload that is fetched.
//
// See docs/adr/0026-cluster-protocol.md for the protocol.
package worker
