// Package service answers the requests of internal/api with the models of this process. Its callers
// are entrances: HTTP today, a sidecar's socket later.
//
// Entry points: New, then for each request Call, which counts it; Gate().Enter, which admits it;
// Find, which resolves the model's id in one catalog snapshot; and the methods of the Model that
// Find returns. Encode, Score, Classify and Extract each call a Prepare method and then Run. An
// entrance that checks a request before it accepts it calls the two itself. Models and Status list
// what is there.
//
// Admission, deadlines, cancellation and draining are those of the Gate (internal/admit), whichever
// entrance a request came by. Goroutines: the package starts none; those of runtime/model end with
// Close. It knows nothing of HTTP, bodies or headers.
package service
