// Package files reads files that other programs may have written: only regular files, and no more
// bytes than the caller allows. It also shortens texts for messages.
//
// Entry points: [Read] for a whole file, [OpenRegular] for an open one, [Dir] for a tree, [ReadAll]
// for any reader, [Clip] for a text in a message. The package imports no other package of the
// module, starts no goroutine and keeps no state.
package files
