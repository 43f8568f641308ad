// Package service answers the requests of internal/api with the models of this process, for every
// entrance: HTTP today, the socket of a sidecar later. Each request goes down once - Model,
// Prepare, Run - and its answer comes up once.
//
// Entry points: New; Find, which resolves a model's id on one view of the catalog; then the methods
// of the Model that it returns. Prepare and Run are the halves of those methods, for entrances that
// check a request before they take it.
//
// Goroutines: none of its own; those of runtime/model end with Close. The package knows no HTTP, no
// bodies and no headers.
package service
