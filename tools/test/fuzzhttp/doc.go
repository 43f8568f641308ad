// Package fuzzhttp tests a real sie-server process over HTTP with tiny models of every family: a
// fuzzer, a mixer of requests of every kind, and an end under load. It holds tests only; `make
// fuzz-http` runs them at length, `go test` briefly.
//
// Every random choice follows from the seed that a run prints: -fuzz.seed repeats it, -fuzz.for
// says how long to go on.
package fuzzhttp
