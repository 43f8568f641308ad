// Package cli defines the flags that every server has: access, log and traces, and limits. It also
// checks the ranges and paths of all flags.
//
// Entry points: Security, Log and Limits, which a command embeds; Health, a command that probes a
// server; CheckRanges and CheckPaths for all flags of a command; UntilSignal, which ends a command.
// A flag that is a number or a duration has the tag range. The package reads flags and environment,
// opens the files that they name, and starts nothing.
package cli
