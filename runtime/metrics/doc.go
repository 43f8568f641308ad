// Package metrics holds the counters, histograms and gauges of a worker, under the names of the
// reference server.
//
// Entry point: New. The service counts requests; runtime/model counts batches and reports models,
// memory and queues. All methods are safe for concurrent use. The package starts no goroutine and
// holds no lock while it reads a gauge.
package metrics
