// Package payload stores, for a short time, the parts of requests and results that are too large
// for a message of the broker.
//
// Entry points: Open, which takes a directory, an s3:// or a gs:// URL; Store. The writer of a
// payload sends its key and the SHA-256 of its bytes in a message; the reader checks them with
// Verify. The gateway deletes what belongs to a request when the request has been answered, and a
// worker a result that nobody took. Expire removes what is left of processes that were killed.
//
// The package starts no goroutine and does not retry.
package payload
