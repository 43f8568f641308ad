// Package lease is the one truth about the pools that clients make: which there are, until when,
// and which workers serve them. It is one document in a key-value bucket of the broker, and every
// change is a compare-and-swap of the whole, so that the bounds over all pools hold, and no worker
// serves two. Gateways change it (gateway/pools has the rules); sidecars read which pool they
// serve.
//
// Entry points: NewStore; Store.Look, Store.Swap and Store.Make; Store.Follow, which looks whenever
// something has changed. A View is what a look saw; Table is its document.
//
// All times are the broker's: a write does not know when it is stored, so its document leaves the
// times of what it makes or renews empty, and whoever reads it takes the time of the message. The
// revision grows with each write; another bucket has another Epoch, and other revisions.
//
// A Table that a View has never changes. The package starts no goroutine; Follow runs in its
// caller's.
package lease
