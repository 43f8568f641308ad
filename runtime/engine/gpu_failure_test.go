//go:build native && cuda && emulated

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// session opens a GPU, loads a block, runs three batches and closes everything. When a step fails,
// it undoes the earlier ones.
func session() error {
	d, err := Open(Options{Kind: CUDA})
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		return err
	}
	defer m.close()
	r := NewRunner(d)
	defer r.Close()
	for _, n := range []int{5, 6, 100} {
		if _, err := run(r, texts(m.program, n, n)); err != nil {
			return err
		}
	}
	return nil
}

// TestGPUEveryCallFails makes each call to the driver fail in turn, once with an error that the
// device survives and once with one that loses it. Either an error of the right kind is returned or
// the failure changes nothing, and nothing is left open.
func TestGPUEveryCallFails(t *testing.T) {
	command(t, "capability 9.0")
	command(t, "reset-calls")
	if err := session(); err != nil {
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
	if calls < 50 {
		t.Fatalf("only %d calls of the driver were counted", calls)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	failed := 0
	for _, kind := range []struct {
		code string
		is   []error
	}{{"2", []error{ErrNoMemory}}, {"700 sticky", []error{ErrDeviceLost}}} {
		for n := 1; n <= calls; n += step {
			command(t, "fail-any %d %s", n, kind.code)
			err := session()
			if err != nil {
				failed++
				known := errors.Is(err, ErrUnsupported) // found while looking for GPUs
				for _, is := range kind.is {
					known = known || errors.Is(err, is)
				}
				if !known {
					t.Errorf("call %d answers %s: %v", n, kind.code, err)
				}
			}
			command(t, "reset")
			nothingLeft(t)
			if t.Failed() {
				t.Fatalf("at call %d of %d, answering %s", n, calls, kind.code)
			}
		}
	}
	// Only few calls may fail unnoticed: those that free, and the one that sets the context's
	// flags.
	if least := 2 * calls / step / 2; failed < least {
		t.Errorf("%d of %d failures were seen, at least %d expected", failed, 2*calls/step, least)
	}
	if err := session(); err != nil {
		t.Fatalf("after all failures: %v", err)
	}
}

func TestGPULostInARun(t *testing.T) {
	for _, what := range []string{"kernel 3 719", "copy 2 700"} {
		t.Run(what, func(t *testing.T) {
			d := openCard(t, "9.0", Options{})
			defer command(t, "reset")
			defer d.Close()
			m, err := newBlock(d, ComputeBF16, blockCaps)
			if err != nil {
				t.Fatal(err)
			}
			r := NewRunner(d)
			defer func() { r.Close(); m.close() }()
			if _, err := run(r, texts(m.program, 7)); err != nil {
				t.Fatal(err)
			}
			command(t, "fail %s", what)
			for range 3 {
				if _, err := run(r, texts(m.program, 7)); !errors.Is(err, ErrDeviceLost) {
					t.Errorf("a lost device answers %v", err)
				}
			}
		})
	}
}

func TestGPUOutOfMemory(t *testing.T) {
	d := openCard(t, "9.0", Options{})
	defer command(t, "memory %d", int64(8)<<30)
	free, total, err := d.Memory()
	if err != nil || free > total || total != 8<<30 {
		t.Fatalf("%d of %d bytes are free, %v", free, total, err)
	}
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(d)
	defer func() { r.Close(); m.close() }()
	command(t, "fail cuMemAlloc_v2 1 2")
	if _, err := run(r, texts(m.program, 7)); !errors.Is(err, ErrNoMemory) {
		t.Errorf("without memory for the arena: %v", err)
	}
	want, err := run(r, texts(m.program, 7))
	if err != nil {
		t.Fatalf("with memory again: %v", err)
	}
	// An output that does not fit leaves everything as it was.
	large := texts(m.program, 7)
	large.OutBytes[0] = 1 << 20
	command(t, "fail cuMemAlloc_v2 2 2")
	if _, err := run(r, large); !errors.Is(err, ErrNoMemory) {
		t.Errorf("without memory for an output: %v", err)
	}
	for range 3 {
		if got, err := run(r, texts(m.program, 7)); err != nil || !slices.Equal(got, want) {
			t.Errorf("after it: %v", err)
		}
	}
}

// TestGPUSlotAfterAFailure fails a copy behind the kernels of a batch, which have then been
// submitted. Both slots must take batches again.
func TestGPUSlotAfterAFailure(t *testing.T) {
	d := openCard(t, "9.0", Options{})
	defer command(t, "reset")
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(d)
	defer func() { r.Close(); m.close() }()
	want, err := run(r, texts(m.program, 7))
	if err != nil {
		t.Fatal(err)
	}
	for copies := 1; copies <= 4; copies++ { // the input, the flags, and the outputs
		command(t, "fail cuMemcpyDtoDAsync_v2 %d 2", copies)
		for range 4 {
			if _, err := run(r, texts(m.program, 7)); err != nil && !errors.Is(err, ErrNoMemory) {
				t.Errorf("copy %d: %v", copies, err)
			}
		}
		for range 3 {
			if got, err := run(r, texts(m.program, 7)); err != nil || !slices.Equal(got, want) {
				t.Errorf("after a failure of copy %d: %v", copies, err)
			}
		}
	}
}
