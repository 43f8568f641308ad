package api

import (
	"math"
	"testing"
)

// Every half comes back from its float, and what lies between two goes to the nearer one, or to the even one.
func TestHalf(t *testing.T) {
	for h := range uint16(0x7c00) {
		f, up := halfToFloat(h), halfToFloat(h+1)
		if got := Half(f); got != h {
			t.Fatalf("half(%v) = %#x, want %#x", f, got, h)
		}
		if got := Half(-f); got != h|0x8000 {
			t.Fatalf("half(-%v) = %#x, want %#x", f, got, h|0x8000)
		}
		if h == 0x7bff {
			up = 65536
		}
		middle := f + (up-f)/2
		even := h + h&1
		if got := Half(middle); got != even {
			t.Fatalf("half(%v), between %#x and the next, = %#x, want %#x", middle, h, got, even)
		}
		if below := math.Nextafter32(middle, f); Half(below) != h {
			t.Fatalf("half(%v) = %#x, want %#x", below, Half(below), h)
		}
		if above := math.Nextafter32(middle, up); Half(above) != h+1 {
			t.Fatalf("half(%v) = %#x, want %#x", above, Half(above), h+1)
		}
	}
	inf := float32(math.Inf(1))
	if Half(inf) != 0x7c00 || Half(-inf) != 0xfc00 || Half(math.MaxFloat32) != 0x7c00 || Half(float32(math.NaN()))&0x7fff <= 0x7c00 {
		t.Error("infinities and NaN do not stay what they are")
	}
}
