// Package service answers the requests of internal/api with the models of this process. Its callers
// are entrances: HTTP today, a sidecar's socket later. A request passes through Model, Prepare and
// Run once.
//
// Entry points: New, then Find, which resolves a model's id in one catalog snapshot, then the
// methods of the Model that it returns. Encode, Score, Classify and Extract each call a Prepare
// method and then Run. An entrance that checks a request before it accepts it calls the two itself.
//
// Goroutines: the package starts none; those of runtime/model end with Close. It knows nothing of
// HTTP, bodies or headers.
package service
