//go:build native && cuda && !emulated

package arch

import (
	"fmt"
	"os"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// eachCard runs f with the host's first GPU. With SIE_REQUIRE_CARD a host without one is a failure.
func eachCard(t *testing.T, f func(t *testing.T, dev *engine.Device)) {
	dev, err := engine.Open(overlapped(engine.Options{Kind: engine.CUDA}))
	if err != nil && os.Getenv("SIE_REQUIRE_CARD") == "" {
		t.Skipf("no card: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	f(t, dev)
}

// inTurn runs f in each class and with each of `parts` parts of a test: a real card has the time.
func inTurn(t *testing.T, parts int, f inPart) {
	t.Helper()
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for _, compute := range computes(t, dev) {
			for part := range parts {
				t.Run(fmt.Sprint(compute, part), func(t *testing.T) { f(t, dev, compute, part) })
			}
		}
	})
}

// classesOfCase gives the classes that a golden model runs in: all that the card serves it in.
func classesOfCase(t *testing.T, dev *engine.Device, name string, _ int) []engine.Compute {
	t.Helper()
	return computesFor(t, dev, name)
}
