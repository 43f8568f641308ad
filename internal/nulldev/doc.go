// Package nulldev defines the answers of the null device (sie-server serve --device null), which
// has no weights and computes nothing: tests and load generators know every answer in advance.
//
// Entry points: Dense, Sparse, Multi, Score, Class and Label, which depend only on the model's id,
// the text and its role; Tokens, the count of a text's tokens; ParseFault, the faults that a text
// asks for. They are pure functions, safe for concurrent use. The package imports nothing of the
// module and starts no goroutine.
package nulldev
