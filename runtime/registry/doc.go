// Package registry keeps loaded models by key: one copy of the weights per key however many names
// point at it.
//
// Acquire returns a pinned reference and loads the model first if it has to. Concurrent callers
// share one load; a load goes on when its callers leave; loads run one at a time. A failed load is
// remembered for its cooldown, so that a broken model is not tried by every request. Before a load,
// and whenever Relieve is called, models are unloaded in order of last use while memory is short;
// pinned ones never are. A load that finds no memory is tried again after each model that could be
// unloaded for it.
//
// Goroutines: one per load and one per unload, awaited by Close. The package knows nothing of
// files, devices or HTTP.
package registry
