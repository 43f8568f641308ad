// Package skew proves that programs of two commits work together: every mixture of the four
// programs of a cluster, and one store of sie-config under both. Its tests need the programs of
// both, which `make skew-check BASE=commit` builds; without them they are skipped.
package skew
