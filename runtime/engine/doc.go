// Package engine runs recorded models on a device: the Go side of csrc/include/sie.h, and the only
// place where the inference process meets C.
//
// A model is packed weight by weight ([Device.NewWeight]), its forward pass is recorded once
// ([Device.Record] and the methods of [Recorder]), and the resulting [Program] is replayed for
// every batch. [Runner] does the replaying: it owns the scratch memory and two I/O slots of a
// device and keeps both busy. Use [Slot] and [Arena] directly only in tests and tools.
//
// Concurrency: the header allows one thread at a time in a device, and a lock in [Device] keeps
// that rule, so every method may be called from any goroutine. A call holds the lock for as long as
// its C function runs: microseconds for a submit, milliseconds for packing one weight. That is how
// a model loads beside a serving one, one weight between two batches. Waiting for a batch takes no
// lock. On a GPU every call runs on the card's own goroutine, which has its context and where a
// Runner's submit loop moves in; packing a weight then happens between two batches, too. Goroutines
// are started by [NewRunner], and by [Open] for a GPU; [Runner.Close] and [Device.Close] stop them.
//
// Ownership: every handle has Close, which may be called twice; any other use after Close panics,
// because it is a bug of the caller. Handles are freed by Close alone, in the order programs,
// weights, slots and arenas, device. Memory of C is seen through [Slot.UnsafeOutput] only.
//
// Built without the tag native, the package has the same API and [Open] returns [ErrNotBuilt].
//
// The package reads no files, knows no model architecture, does not batch and does not log.
package engine
