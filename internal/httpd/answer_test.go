package httpd

import "testing"

// The number of items that fit is never overestimated.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		items       int
		bytes, room int64
		want        int
	}{{10, 1000, 100, 1}, {10, 1000, 99, 0}, {10, 1000, -5, 0}, {1 << 20, 1 << 32, 1 << 30, 1 << 18}, {3, 10, 9, 2}} {
		if got := fits(c.items, c.bytes, c.room); got != c.want {
			t.Errorf("%d of %d bytes in %d: %d, want %d", c.items, c.bytes, c.room, got, c.want)
		}
	}
	a := share{bodies: &bodies{maxHeld: 100}, field: "items"}
	if err := a.hold(60, 1); err != nil || a.held != 60 || a.bodies.held.Load() != 60 {
		t.Error(err, a.held)
	}
	if err := a.hold(60, 2); err == nil || a.held != 60 || a.bodies.held.Load() != 60 {
		t.Error("refused bytes are held")
	}
	a.release()
	a.release()
	if a.bodies.held.Load() != 0 {
		t.Error(a.bodies.held.Load())
	}
}
