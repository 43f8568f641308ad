//go:build native && cuda && emulated

package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// prefixSession opens a GPU, runs batches with prefixes and closes everything.
func prefixSession(rounds int) error {
	d, err := Open(Options{Kind: CUDA})
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := newDecoder(d, ComputeBF16)
	if err != nil {
		return err
	}
	defer m.close()
	r := NewRunner(d)
	defer r.Close()
	return m.compare(r, rand.New(rand.NewPCG(13, 14)), rounds)
}

// Prefixes on every card, with batches that are captured as graphs.
func TestGPUPrefixes(t *testing.T) {
	for _, capability := range []string{"8.0", "8.9", "9.0"} {
		command(t, "capability %s", capability)
		if err := prefixSession(12); err != nil {
			t.Errorf("%s: %v", capability, err)
		}
	}
}

// Each call to the driver fails in turn, between the prefixes and their texts too: an error of the
// right kind, or no change; and nothing is left open.
func TestGPUPrefixCallsFail(t *testing.T) {
	command(t, "capability 9.0")
	command(t, "reset-calls")
	if err := prefixSession(3); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for line := range strings.Lines(command(t, "calls")) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			calls += n
		}
	}
	for _, kind := range []struct {
		code string
		is   error
	}{{"2", ErrNoMemory}, {"700 sticky", ErrDeviceLost}} {
		for n := 1; n <= calls; n += 3 {
			command(t, "fail-any %d %s", n, kind.code)
			err := prefixSession(3)
			if err != nil && !errors.Is(err, kind.is) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("call %d answers %s: %v", n, kind.code, err)
			}
			command(t, "reset")
			nothingLeft(t)
			if t.Failed() {
				return
			}
		}
	}
}
