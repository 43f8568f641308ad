// Package results holds what a sidecar has to tell a gateway until the gateway has receipted it,
// and remembers which slices are done.
//
// Entry points: Kept, the messages that wait for a receipt; Stamp, which completes a server's
// result; Done, the ids that were answered. Everything here belongs to one goroutine, does no I/O
// and knows no clock: its callers pass the time.
package results
