// Command golists breaks the Go files of the architectures on purpose, one fault at a time, and
// demands that a test turns red. The faults are listed by hand in tools/mutate/arch: gate halves
// exchanged, another base of the rotary embeddings, a window one wider, a norm left out. It judges
// all of them, or those of some files, and fails where one lives.
//
// All faults are compiled into one test program, each behind a number that the environment variable
// SIE_MUTANT selects (instrument.go), so that a fault costs one run of the tests that its list
// names.
package main
