//go:build native && cuda && emulated

package task_test

import (
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

func TestGPUDecisions(t *testing.T) {
	if _, err := engine.StandIn("capability 9.0"); err != nil {
		t.Fatal(err)
	}
	checkDecisions(t, openDevice(t, engine.Options{Kind: engine.CUDA}))
}
