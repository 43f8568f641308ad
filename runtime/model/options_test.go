package model

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// Validate reports all errors at once, including those of queues and devices, and no device is
// opened.
func TestOptionsAreValidated(t *testing.T) {
	_, err := New(Options{LoadWait: -time.Second, IdleEvict: -1, MaxLoRAs: 65, MemoryThreshold: math.NaN(),
		Devices: []engine.Options{{}, {Threads: -1}}, Batch: batch.Options{MaxCost: -1}})
	for _, want := range []string{
		"Catalog is required", "Hub is required", "Metrics is required", "LoadWait must not be negative",
		"Registry: Idle must not be negative", "MaxLoRAs must be between 0 and 64; got 65",
		"MemoryThreshold must not be negative; got NaN", "Devices[1]: Threads", "Batch: MaxCost",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
