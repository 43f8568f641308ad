// Package server is the HTTP front of a worker: native routes in msgpack and JSON, OpenAI's embeddings route, rerank for
// Cohere's and Jina's clients, text-embeddings-inference's routes, model listings, health, metrics, status and pages.
//
// Entry points: New, Serve, Shutdown; NewKeys and NewTLS for who may use it and how. One fasthttp server; a handler copies what it needs of a request before it returns
// to fasthttp's buffers. Bodies are read within a bound each and a bound together; a client that leaves has its queued
// items dropped; during Shutdown new work is refused with a retryable 503 while running work finishes.
//
// Goroutines: fasthttp's connection workers, one that watches for hang-ups, one per status socket. The package does no
// inference, and knows models only through the worker.
package server
