// Package top shows a gateway and its cluster in a terminal: lanes, models, workers, what waits,
// the free credit, rates, and what was published again.
//
// Entry points: Client.Poll, which reads /health and /metrics of a gateway; Board, which keeps what
// was polled last and makes lines of it. The package starts no goroutine.
package top
