// Package fuzzhttp tests a real sie-server process over HTTP with tiny models of every family. It
// has a fuzzer, a mix of requests of every kind, and a shutdown under load. It holds only tests;
// `make fuzz-http` runs them at length, `go test` briefly.
//
// Every random choice follows from the seed that a run prints: -fuzz.seed repeats it, and -fuzz.for
// sets how long to go on.
package fuzzhttp
