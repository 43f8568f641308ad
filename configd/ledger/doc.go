// Package ledger keeps what was added to the configuration of a cluster: the documents of models,
// the epoch and the answers of idempotent requests.
//
// Entry points: OpenPlace, which finds the place that a setting names (a directory, an S3 or a
// Google Cloud Storage bucket), Memory for none, and Open, which returns the Ledger of a place.
//
// A ledger is a log. Each Commit is one record with the model, the epoch and the answer, put under
// the next number if there is none of that number: one compare-and-swap, which costs about as much
// as the model. Neither a crash nor a failing store leaves half of a change, and no two writers
// overwrite each other: the one that comes second stops with a *TakenError. Every checkpointEvery
// records the state is stored as a whole, and a small head that names it is replaced by
// compare-and-swap; the records before it are then removed by Tidy. Because a writer that was
// paused could put a record in the place of a removed one, a record counts only once the head has
// been read after it and names no later checkpoint.
//
// A Ledger belongs to one goroutine at a time, apart from State and Tidy. It starts no goroutine,
// and no wall clock is read.
package ledger
