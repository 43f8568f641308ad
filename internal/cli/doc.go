// Package cli holds the flags that every server has: who may use it, its log and traces, its
// limits; and the check of ranges.
//
// Entry points: Security, Log and Limits, embedded in a command; CheckRanges for all flags of one.
// A number or a duration has the tag range. The package reads flags and environment, opens the
// files they name, and starts nothing.
package cli
