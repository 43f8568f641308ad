// Package hub turns a model id into a local directory. The result is an existing directory, a
// snapshot of the Hugging Face cache on disk, or a download into that cache. A download comes from
// a bucket that a cluster shares (shared.go describes its contents) or from the hub.
//
// Entry points: [OptionsFromEnv] reads the environment variables that Hugging Face tools share (and
// SIE_LOCAL_CACHE), [New] makes a [Resolver], [Resolver.Resolve] finds or downloads a model. Errors
// are [*Error] with a [Class] that says whether another try can help.
//
// The cache has the layout of the Python tools, models--org--name/{blobs,refs,snapshots}, and is
// shared with them. Blobs are named by their checksum, partial ones end in .incomplete, and the
// per-blob locks in .locks are the same flock(2) locks. This package adds .sie/ to a repository's
// folder: one manifest per commit that lists the files of a complete snapshot, the record of the
// last use, and files of downloads and uploads under way. A new snapshot becomes visible all at
// once: every blob is verified and renamed into place first, then a new snapshot directory is
// renamed into place, then the ref is written. An interrupted download leaves only .incomplete
// blobs, and the next download continues from them.
//
// Data from the network is untrusted. Listings, sizes, names, redirects and bodies are bounded and
// checked. File contents are verified against the checksums of the listing; only a folder that was
// copied into the bucket by hand has none. The token is sent to the endpoint's own origin only.
//
// Before a download, repositories that are not in use may be removed to free disk space (disk.go).
// Room for the download is reserved until its last byte (room.go). A Resolved is in use until its
// Release. On a file system without locks the cache is filled and used, but nothing is removed from
// it (lock.go). Models downloaded from the hub are uploaded to the bucket in the background
// (share.go).
//
// A Resolve starts at most Options.Parallel goroutines and waits for them. A Resolver with a bucket
// has one more goroutine for each model that waits for its upload, and one that renews the upload's
// lock; Close ends them. The package does not read weights (package weights does) and runs no code
// of a model.
package hub
