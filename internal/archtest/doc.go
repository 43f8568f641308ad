// Package archtest holds the tests that keep the tree in order: which package may import which,
// which may use cgo, and that every package is documented. It has no code outside its tests and
// starts nothing.
package archtest
