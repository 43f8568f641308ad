package half

import (
	"math"
	"testing"
)

// widen returns a finite half as a float, computed with powers of two.
func widen(h uint16) float32 {
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	if exponent == 0 {
		return float32(math.Ldexp(fraction, -24))
	}
	return float32(math.Ldexp(1024+fraction, exponent-25))
}

func TestToFloat32(t *testing.T) {
	for h := range uint16(0x7c00) {
		want := widen(h)
		if got := ToFloat32(h); got != want || math.Signbit(float64(got)) {
			t.Fatalf("%#x widens to %v, want %v", h, got, want)
		}
		if got := ToFloat32(h | 0x8000); got != -want || !math.Signbit(float64(got)) {
			t.Fatalf("%#x widens to %v, want %v", h|0x8000, got, -want)
		}
	}
	if got := ToFloat32(0x7c00); !math.IsInf(float64(got), 1) {
		t.Errorf("infinity widens to %v", got)
	}
	if got := ToFloat32(0xfc00); !math.IsInf(float64(got), -1) {
		t.Errorf("minus infinity widens to %v", got)
	}
	for h := uint16(0x7c01); h < 0x8000; h++ {
		if bits := math.Float32bits(ToFloat32(h)); bits != 0x7f800000|uint32(h&0x3ff)<<13 {
			t.Fatalf("NaN %#x widens to %#x", h, bits)
		}
		if bits := math.Float32bits(ToFloat32(h | 0x8000)); bits != 0xff800000|uint32(h&0x3ff)<<13 {
			t.Fatalf("NaN %#x widens to %#x", h|0x8000, bits)
		}
	}
}

// Every half comes back from its float. A number between two halves goes to the nearer one, and a
// tie to the even one.
func TestFromFloat32(t *testing.T) {
	for h := range uint16(0x7c00) {
		f, up := widen(h), widen(h+1)
		if got := FromFloat32(f); got != h {
			t.Fatalf("%v rounds to %#x, want %#x", f, got, h)
		}
		if got := FromFloat32(-f); h > 0 && got != h|0x8000 {
			t.Fatalf("-%v rounds to %#x, want %#x", f, got, h|0x8000)
		}
		if h == 0x7bff {
			up = 65536
		}
		middle := f + (up-f)/2
		even := h + h&1
		if got := FromFloat32(middle); got != even {
			t.Fatalf("%v, between %#x and the next, rounds to %#x, want %#x", middle, h, got, even)
		}
		if below := math.Nextafter32(middle, f); FromFloat32(below) != h {
			t.Fatalf("%v rounds to %#x, want %#x", below, FromFloat32(below), h)
		}
		if above := math.Nextafter32(middle, up); FromFloat32(above) != h+1 {
			t.Fatalf("%v rounds to %#x, want %#x", above, FromFloat32(above), h+1)
		}
	}
	inf := float32(math.Inf(1))
	for f, want := range map[float32]uint16{
		inf:                           0x7c00,
		-inf:                          0xfc00,
		math.MaxFloat32:               0x7c00,
		-math.MaxFloat32:              0xfc00,
		math.SmallestNonzeroFloat32:   0,
		float32(math.Copysign(0, -1)): 0x8000,
	} {
		if want == 0x8000 {
			f = float32(math.Copysign(0, -1)) // a map holds one zero
		}
		if got := FromFloat32(f); got != want {
			t.Errorf("%v rounds to %#x, want %#x", f, got, want)
		}
	}
	for _, nan := range []uint32{0x7f800001, 0x7fffffff, 0xff800001} {
		if got := FromFloat32(math.Float32frombits(nan)); got != 0x7e00|uint16(nan>>16)&0x8000 {
			t.Errorf("NaN %#x rounds to %#x", nan, got)
		}
	}
}
