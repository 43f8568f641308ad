// Package metrics holds the counters, histograms and gauges of a worker, under the names of the
// reference server.
//
// Entry point: New; the server counts requests, the worker batches, models, memory and queues. Safe
// for concurrent use. No goroutine is started, and no lock is held while a gauge is read.
package metrics
