// Package demand knows what a cluster's lanes need and have not, for whatever starts and stops
// machines. Every gateway exports the same numbers: what one gateway notes it tells the others in
// its heartbeats, what pools ask follows from their document, and what waits is read from the
// broker. The largest value over all gateways is therefore the cluster's, however many there are.
//
// Entry points: New; Tracker.Note for a request that found no worker, Tracker.Told for heartbeats,
// Tracker.Subscribe for those of others, and Tracker.Watch, which reads the queues.
//
// A demand is of a lane that workers can be started for: of a client's pool, the lane that its
// workers come from. It ends when that lane has a ready worker, or 120 s after the last request.
// The package runs one goroutine, Watch.
package demand
