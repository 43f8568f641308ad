// Package model loads models on this machine's devices and manages the memory that they take. A
// model is its weights, its tokenizer, one program for each set of outputs, and its LoRA adapters.
// The package does not know requests.
//
// Entry points: New opens the devices. Host.Acquire returns the Model of a catalog entry and keeps
// it loaded; it loads the model on demand. Model.Variant returns a program with its queue.
// Host.SetCatalog replaces the catalog; Host.Models and Host.Status list it.
//
// Goroutines: those of the registry, the queues and the device runners, and one for each adapter
// that is being loaded. Close stops all of them.
package model
