// Package compat answers requests of other APIs - OpenAI's embeddings, rerank of Cohere and Jina,
// text-embeddings-inference - through a Backend that answers native requests.
//
// Entry points: API with its Backend, and Routes, which a server mounts. A route turns a body into
// a native request, and the native answer into a Reply in its API's format. Errors are *errs.Error,
// which package dialect renders. The package knows no HTTP server and no engine, starts no
// goroutine and keeps no state.
package compat
