// Package worker is the inference process without its front door: it resolves model ids, loads models on demand,
// tokenises, batches, runs and hands back results in order.
//
// Entry points: New, then Encode for one request and Models, Status for listings. A request passes: catalog → registry
// (load, pin) → templates → tokenizer (parallel, in chunks) → batch queue → device → result rows.
//
// Goroutines: those of the registry, the queues and the device runner, all stopped by Close. The package does not know
// HTTP, bodies or headers.
package worker
