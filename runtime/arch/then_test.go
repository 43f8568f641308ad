package arch

import (
	"errors"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/guard"
)

// Two layers become one on several goroutines. A panic on one of them is the caller's, whose load
// fails; the process goes on.
func TestThen(t *testing.T) {
	a := affine{in: 2, out: 3, weight: []float32{1, 2, 3, 4, 5, 6}, bias: []float32{1, 0, -1}}
	b := affine{in: 3, out: 2, weight: []float32{1, 0, 2, 0, -1, 1}, bias: []float32{0.5, 0}}
	c := a.then(b)
	if c.in != 2 || c.out != 2 || !slices.Equal(c.weight, []float32{11, 14, 2, 2}) ||
		!slices.Equal(c.bias, []float32{-0.5, -1}) {
		t.Errorf("%+v", c)
	}
	var p *guard.Panic
	a.weight = slices.Clip(a.weight[:1])
	if err := guard.Run(func() error { a.then(b); return nil }); !errors.As(err, &p) {
		t.Errorf("%v, want a panic", err)
	}
}
