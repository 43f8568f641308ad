// Package archtest holds the tests that keep the tree in order: which package may import which,
// which may use cgo, and that every package says what it is for. It has no code of its own and
// starts nothing.
package archtest
