package testrig

import "os"

// Programs returns the folder in SIE_TEST_PROGRAMS, which has this tree's programs. Where it is
// empty a test builds those that it starts.
func Programs() string { return os.Getenv("SIE_TEST_PROGRAMS") }
