package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var errPlain = errors.New("an error")

func TestRun(t *testing.T) {
	for _, want := range []error{nil, errPlain} {
		if err := Run(func() error { return want }); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	var p *Panic
	err := Run(func() error { faulty(); return nil })
	if !errors.As(err, &p) || p.Value != "a fault" || err.Error() != "panic: a fault" ||
		!strings.Contains(string(p.Stack), "guard.faulty") {
		t.Errorf("%v, %+v", err, p)
	}
}

// The log has the stack of a panic, and of nothing else.
func TestAbout(t *testing.T) {
	wrapped := fmt.Errorf("wrapped: %w", &Panic{"a fault", []byte("main.go:7")})
	for err, want := range map[error][]any{
		errPlain: {"error", errPlain}, wrapped: {"error", wrapped, "stack", "main.go:7"},
	} {
		if got := About(err); !slices.Equal(got, want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func faulty() { panic("a fault") }

// Each ends all functions before it passes a panic on, and the panic keeps its own stack.
func TestEach(t *testing.T) {
	var ran atomic.Int32
	Each(4, func(i int) { ran.Add(1 << (8 * i)) })
	if n := ran.Swap(0); n != 1<<24|1<<16|1<<8|1 {
		t.Errorf("ran %x", n)
	}
	Each(0, func(int) { t.Error("one of none ran") })
	var p *Panic
	err := Run(func() error {
		Each(3, func(i int) {
			if ran.Add(1); i == 1 {
				faulty()
			}
		})
		t.Error("went on")
		return nil
	})
	if !errors.As(err, &p) || p.Value != "a fault" || !strings.Contains(string(p.Stack), "guard.faulty") ||
		ran.Load() != 3 {
		t.Errorf("%v after %d", err, ran.Load())
	}
}
