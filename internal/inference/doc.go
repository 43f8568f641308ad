// Package inference serves the inference routes over HTTP: the native ones and, through
// internal/compat, those of other APIs, and the list of models. sie-server and the gateway mount
// the same routes over different Backends, so that their answers are the same.
//
// Entry points: New and API.Routes; a Backend begins a Session for each request. The package
// decodes, asks the Session, writes the answer in the caller's dialect and counts the request. It
// starts no goroutine and holds no state between requests.
package inference
