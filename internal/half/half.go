// Package half converts between IEEE 754 binary16 numbers and float32.
//
// Entry points: [ToFloat32], which is exact, and [FromFloat32], which rounds. The package imports
// no other package of the module and keeps no state.
package half

import "math"

// ToFloat32 widens a half exactly, including subnormals, infinities and the payloads of NaNs.
func ToFloat32(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0: // zero or subnormal: fraction · 2⁻²⁴
		return math.Float32frombits(math.Float32bits(float32(fraction)*0x1p-24) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// FromFloat32 rounds to the nearest half, ties to even. From 65520 on the result is an infinity;
// every NaN becomes a quiet NaN without a payload.
func FromFloat32(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, rest := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case rest > 0x7f800000: // NaN
		return sign | 0x7e00
	case rest >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case rest < 0x38800000: // below 2⁻¹⁴: a multiple of 2⁻²⁴, which adding 0.5 rounds to
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-math.Float32bits(0.5))
	}
	rest += 0xfff + rest>>13&1 // ties to even
	return sign | uint16((rest-112<<23)>>13)
}
