// Package admit decides which requests a process works on. It admits them until a drain begins,
// gives each a deadline, bounds the bytes that all of them hold, and waits for them when the
// process stops.
//
// Entry points: New makes the Gate that all entrances of a process share. Gate.Enter admits a
// request and returns its Work, which every layer below gets: the Work has the request's context
// and counts its results. Gate.Drain ends the work of a process. Unbounded is for callers without a
// Gate.
//
// Goroutines: none. The package knows neither HTTP nor models.
package admit
