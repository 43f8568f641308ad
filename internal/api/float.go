package api

import (
	"encoding/base64"
	"math"
	"strconv"
)

// AppendJSONFloat appends f as Python prints it. The result has the shortest digits that read back
// as f, in fixed notation from 1e-4 up to 1e16, and always a point or an exponent. JSON has no NaN
// and no infinity; they become null.
func AppendJSONFloat(dst []byte, f float64) []byte { return appendNumber(dst, f, 64) }

// appendNumber appends f with the shortest digits that read back as f in bits (32 or 64) bits.
func appendNumber(dst []byte, f float64, bits int) []byte {
	switch abs := math.Abs(f); {
	case abs == 0 || abs >= 1e-4 && abs < 1e16:
		dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
		if f == math.Trunc(f) {
			dst = append(dst, '.', '0')
		}
		return dst
	case f-f != 0: // NaN or infinite
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, bits)
}

// appendFloat32 appends f widened to double precision, as numpy prints lists.
func appendFloat32(dst []byte, f float32) []byte { return AppendJSONFloat(dst, float64(f)) }

func appendBase64String(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
