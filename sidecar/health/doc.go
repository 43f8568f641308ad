// Package health shows the state of a sidecar to its host: probes and metrics over HTTP.
//
// Entry points: NewMetrics, State, and Serve, which answers /healthz, /readyz and /metrics. Metrics
// and State are safe for concurrent use. Serve runs the goroutines of net/http until its context
// ends.
package health
