// Package skew proves that programs of two commits work together: each of the four programs of a
// cluster from the earlier commit beside the others from this one, and the other way round. Its
// test needs the programs of both, which `make skew-check BASE=commit` builds; without them it is
// skipped.
package skew
