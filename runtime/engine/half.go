package engine

import "math"

// Half rounds to an IEEE half, to nearest, ties to even; what is too large becomes an infinity.
func Half(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, rest := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case rest > 0x7f800000: // NaN
		return sign | 0x7e00
	case rest >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case rest < 0x38800000: // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-math.Float32bits(0.5))
	}
	rest += 0xfff + rest>>13&1 // ties to even
	return sign | uint16((rest-112<<23)>>13)
}
