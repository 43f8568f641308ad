// Package engine runs recorded models on a device. It is the Go side of csrc/include/sie.h, and the
// only place where the inference process calls C.
//
// A model is packed weight by weight ([Device.NewWeight]). Its forward pass is recorded once
// ([Device.Record] and the methods of [Recorder]), and the resulting [Program] is replayed for
// every batch. [Runner] does the replaying: it owns the scratch memory and two I/O slots of a
// device and keeps both busy. Use [Slot] and [Arena] directly only in tests and tools.
//
// Concurrency: every method may be called from any goroutine. The header allows one thread at a
// time in a device, and a lock in [Device] keeps that rule. A call holds the lock for as long as
// its C function runs: microseconds for a submit, milliseconds for packing one weight. So a model
// can load while another one serves: its weights are packed one at a time, between batches. Waiting
// for a batch takes no lock. On a GPU every call runs on one goroutine that owns the GPU's context;
// a Runner's submit loop runs on the same goroutine, so a weight is packed between two batches
// there, too. [NewRunner] starts goroutines, and so does [Open] for a GPU; [Runner.Close] and
// [Device.Close] stop them.
//
// Ownership: every handle has Close, which may be called twice; any other use after Close is a bug
// of the caller and panics. Only Close frees a handle. Close programs first, then weights, slots
// and arenas, and the device last. C memory is visible to callers only through [Slot.UnsafeOutput]
// and [Slot.NonFinite].
//
// Built without the tag native, the package has the same API and [Open] returns [ErrNotBuilt].
//
// The package reads no files, knows no model architecture, does not batch and does not log.
package engine
