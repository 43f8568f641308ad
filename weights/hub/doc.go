// Package hub turns a model id into a local directory: a directory as it is, a snapshot of the
// Hugging Face cache on disk, or a download into that cache, from a bucket that a cluster shares
// (shared.go says what it holds) or the hub.
//
// Entry points: [OptionsFromEnv] reads the environment variables that Hugging Face tools share (and
// SIE_LOCAL_CACHE), [New] makes a [Resolver], [Resolver.Resolve] does the work. Errors are [*Error]
// with a [Class] that says whether trying again can help.
//
// The cache has the layout of the Python tools, models--org--name/{blobs,refs,snapshots}, and is
// shared with them: blobs are named by their checksum, partial ones end in .incomplete, and the
// per-blob locks in .locks are the same flock(2) locks. What is added is .sie/ in a repository's
// folder: a lock, and one manifest per commit with the files a complete snapshot has. A download
// becomes visible all at once: every blob is verified and renamed into place first, then a new
// snapshot directory is renamed into place, then the ref is written. An interrupted download leaves
// only .incomplete blobs, from which the next one goes on.
//
// What comes over the network is untrusted: listings, sizes, names, redirects and bodies are
// bounded and checked, file contents are verified against the checksum of the listing, and the
// token goes to the endpoint's own origin only.
//
// Before a download the disk may be relieved of repositories that nobody uses (disk.go), and the
// download's room is reserved until its last byte (room.go); a Resolved is in use until its
// Release. On a file system without locks the cache is filled and used, and nothing is removed from
// it (lock.go). What came from the hub is put into the bucket in the background (share.go).
//
// A Resolve starts at most Options.Parallel goroutines and waits for them; a Resolver with a bucket
// has one more for each model that waits for its upload, ended by Close. The package does not read
// weights (package weights does) and runs no code of a model.
package hub
