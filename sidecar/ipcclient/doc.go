// Package ipcclient talks to the server beside the sidecar over its Unix socket.
//
// Entry points: New and Client.Run, which keeps one connection; Client.Go, a call whose outcomes
// stream in; Client.Call, one that waits; Events, what the client says of the server. Many calls
// share the connection, told apart by their request ids.
//
// Run uses its own goroutine and two more while there is a connection: one reads, one writes. The
// callbacks of calls and of Events run on them, one at a time for each connection, and must not
// wait for another call of the same client.
package ipcclient
