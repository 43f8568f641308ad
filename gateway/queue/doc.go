// Package queue answers requests through the broker: it is the gateway's inference.Backend.
//
// Entry points: New, then Queue.Start with a connection; Queue.Connected and Queue.Disconnected,
// which the owner of the connection calls; NewBackend.
//
// The gateway that holds a request is the durable copy of its work (docs/adr/0026). A request is
// cut into slices; each is published to the work stream of its lane, and its result comes to the
// gateway's inbox. Everything between may be lost: the pending table knows where each slice was
// last seen, and publishes again what was lost. A slice is in one of these states:
//
//	idle    not begun, because enough slices of the request are on their way
//	queued  waits here to be published
//	sent    published, not acknowledged by the broker
//	stored  in the stream
//	taken   a worker has it
//	done    it has a result, or nobody wants one any more
//
// After the first death of a server that had it, a slice runs alone and where it has not died. The
// second death while alone makes it a dead letter: stored with its reason, taken off the stream,
// and told to its caller. Deaths beside others prove nothing. The third death of any kind is the
// last; without two of them alone its caller gets a retryable 503, and there is no letter.
//
// Goroutines: the caller's of each request, which sends its first publishes and waits; the
// subscription's, which takes everything that arrives and never waits; one keeper, which looks at
// all pending slices four times a second, and at once at those that wait to be published, and
// publishes again; and a bounded number for calls of the broker's API and of the payload store.
// Locks are held for a few assignments only, never over I/O; a request's lock is taken before that
// of its line.
package queue
