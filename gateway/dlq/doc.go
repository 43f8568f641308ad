// Package dlq keeps dead letters: work that ended every server that ran it, with the reason.
//
// Entry points: Letter; Store, which the gateway that holds the request calls; List, Get, Drop and
// Replay for the command line. Letters are messages of the stream DEAD_LETTERS, which keeps them
// for a day within its bound on bytes; the oldest go first. They hold texts of callers, which is
// their purpose; nothing of a letter is ever logged but its id.
//
// Only Replay starts goroutines, which end with it.
package dlq
