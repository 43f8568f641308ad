// Package ipc defines how a sidecar talks to the server beside it: length-delimited msgpack frames
// over a Unix socket, multiplexed by request id.
//
// Entry points: ReadFrame and AppendFrame; Request and Response, the envelopes; a pair of types for
// each method. A frame is a 4-byte big-endian length and a msgpack map of at most MaxFrame bytes.
// Unknown fields are ignored, absent ones read as zero. Bodies and work items stay raw msgpack
// until they are used. The package starts no goroutine.
package ipc
