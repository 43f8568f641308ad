// Package registry keeps loaded models by key, one copy of the weights per key.
//
// Acquire returns a reference that keeps the model loaded, and loads the model first if necessary.
// Concurrent callers share one load, and the load goes on when its callers leave. Models are packed
// one at a time; up to Options.Fetches fetches run at once. A failed load is remembered for its
// cooldown, so that requests do not load a broken model again and again. Before a model is packed,
// and in Relieve, models are unloaded in order of last use while memory is short; pinned models
// never are. A load that fails for lack of memory is tried again each time another model could be
// unloaded for it.
//
// Goroutines: one per load, one per unload and the monitor of Watch; Close waits for all of them.
// The package knows nothing of files, devices or HTTP.
package registry
