// Package model has what is loaded on this machine's devices: weights with their tokenizer, the
// programs recorded over them by what they give, adapters, and the memory that all of it takes. It
// knows no request.
//
// Entry points: New opens the devices; Host.Acquire pins the Model of a catalog entry, which is
// loaded on demand; Model.Variant is a program with its queue. Host.SetCatalog replaces the
// catalog, Models and Status list it.
//
// Goroutines: those of the registry, the queues and the device runners, and one for each adapter
// that is being loaded, all stopped by Close.
package model
