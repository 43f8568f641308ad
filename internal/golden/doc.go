// Package golden is the test helper for golden data: it finds a case under testdata/golden, checks
// its manifest, reads its tensors, and compares vectors.
//
// Entry points: [Open] for a case, [Compare] and [NDCG10] for results. The reader is separate from
// package weights on purpose, so that a fault there cannot hide in its own tests; it trusts the
// files, which the manifest's sums protect.
//
// For tests only. It starts no goroutines and does not write golden data: tools/golden does, from
// the Python reference.
package golden
