// Package rank decides which workers of a lane run a model, by their heartbeats.
//
// Entry points: Table, which holds the live heartbeats, and Table.Decide, what one worker does
// about a model. Workers are ranked by rendezvous hash of (worker, model): a worker that comes or
// goes moves its own models only. Everything here belongs to one goroutine, does no I/O and knows
// no clock: its callers pass the time.
package rank
