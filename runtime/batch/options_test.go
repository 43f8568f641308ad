package batch

import (
	"math"
	"strings"
	"testing"
)

// Validate reports all errors at once.
func TestOptionsAreValidated(t *testing.T) {
	err := (&Options{MaxCost: -1, CoalesceRatio: 2, MaxBacklog: -5}).Validate()
	for _, want := range []string{
		"MaxCost must not be negative; got -1", "CoalesceRatio must be at most 1; got 2", "MaxBacklog",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if (&Options{CoalesceRatio: math.NaN()}).Validate() == nil {
		t.Error("NaN is a ratio")
	}
	if err := (&Options{}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
