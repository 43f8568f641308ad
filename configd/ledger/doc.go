// Package ledger keeps what was added to the configuration of a cluster: the documents of models,
// the epoch and the answers of idempotent requests, as one object that is replaced as a whole.
//
// Entry points: OpenPlace, which finds the place that a setting names (a directory, an S3 or a
// Google Cloud Storage bucket), Memory for none, and Open, which returns the Ledger of a place.
// Each Commit is one compare-and-swap, so that neither a crash nor a failing store leaves half of a
// change, and no two writers overwrite each other: the one that comes second stops with a
// *TakenError.
//
// A Ledger belongs to one goroutine at a time, apart from State. Ledger.Run is the package's only
// goroutine; its caller starts it. No wall clock is read.
package ledger
