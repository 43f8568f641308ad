// Package golden reads golden data for tests: it finds a case under testdata/golden, checks its
// manifest, reads its tensors, and compares vectors.
//
// Entry points: [Open] for a case, [Compare] and [NDCG10] for results. The reader is separate from
// package weights on purpose, so that a fault there cannot hide in its own tests. It trusts the
// format of the files, because the manifest's checksums protect them.
//
// For tests only. It starts no goroutines and does not write golden data: tools/golden writes it,
// from the Python reference.
package golden
