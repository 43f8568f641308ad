// Package files reads files that others may have written: regular ones only, and no more bytes than
// the caller allows. It also cuts what they contain, so that a message stays short.
//
// Entry points: [Read] for a whole file, [OpenRegular] for an open one, [Dir] for a tree, [ReadAll]
// for any reader, [Clip] for a text in a message. The package imports nothing of the module, starts
// no goroutine and keeps no state.
package files
