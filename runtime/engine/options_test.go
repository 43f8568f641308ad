package engine

import (
	"strings"
	"testing"
)

// Validate reports all problems at once.
func TestOptionsAreValidated(t *testing.T) {
	err := (&Options{Threads: 1025, Ordinal: -1}).Validate()
	if err == nil || !strings.Contains(err.Error(), "Threads must be between 0 and 1024; got 1025") ||
		!strings.Contains(err.Error(), "Ordinal") {
		t.Error(err)
	}
	if (&Options{Threads: -1}).Validate() == nil {
		t.Error("a negative number of threads")
	}
	if err := (&Options{Threads: 1024}).Validate(); err != nil {
		t.Error(err)
	}
}
