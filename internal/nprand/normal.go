package nprand

import (
	_ "embed"
	"encoding/binary"
	"math"
)

// Normals are drawn with the ziggurat method (Marsaglia and Tsang 2000; Doornik 2005): 256 strips
// of equal area under the right half of the density. A point is drawn in a strip. Below
// inside[strip] it certainly lies under the density; otherwise the density decides. The conversions
// below keep a compiler from fusing multiplications with additions, which would change the
// rounding.

//go:embed ziggurat.bin
var constants string // written by make_tables.py, which describes its content

const (
	tailStart = 3.6541528853610088
	tailScale = 0.27366123732975828 // 1/tailStart
)

var (
	width, density     [256]float64
	inside             [256]uint64
	width32, density32 [256]float32
	inside32           [256]uint32
)

func init() {
	number := func(i int) uint64 { return binary.LittleEndian.Uint64([]byte(constants[8*i : 8*i+8])) }
	for i := range 256 {
		width[i] = math.Float64frombits(number(i))
		density[i] = math.Float64frombits(number(256 + i))
		inside[i] = number(512 + i)
		// The strips of float32 use 23 bits of a point instead of 52.
		width32[i] = float32(width[i] * (1 << 29))
		density32[i] = float32(density[i])
		inside32[i] = uint32((inside[i] + 1<<28) >> 29)
	}
}

// Normal returns normal(): mean 0, deviation 1, in float64.
func (g *Generator) Normal() float64 {
	for {
		draw := g.Uint64()
		strip := draw & 0xff
		point := draw >> 9 & (1<<52 - 1)
		x := float64(point) * width[strip]
		if draw>>8&1 != 0 {
			x = -x
		}
		switch {
		case point < inside[strip]:
			return x
		case strip == 0:
			return g.tail(point>>8&1 != 0)
		}
		height := float64((density[strip-1]-density[strip])*g.Float64()) + density[strip]
		if height < math.Exp(-0.5*x*x) {
			return x
		}
	}
}

func (g *Generator) tail(negative bool) float64 {
	for {
		x := -tailScale * math.Log1p(-g.Float64())
		y := -math.Log1p(-g.Float64())
		if y+y > x*x {
			return signed(tailStart+x, negative)
		}
	}
}

// Normal32 returns standard_normal(dtype=float32); its draws differ from Normal's.
func (g *Generator) Normal32() float32 {
	for {
		draw := g.Uint32()
		strip := draw & 0xff
		point := draw >> 9
		x := float32(point) * width32[strip]
		if draw>>8&1 != 0 {
			x = -x
		}
		switch {
		case point < inside32[strip]:
			return x
		case strip == 0:
			return g.tail32(point>>8&1 != 0)
		}
		height := float32((density32[strip-1]-density32[strip])*g.Float32()) + density32[strip]
		if float64(height) < math.Exp(-0.5*float64(x)*float64(x)) {
			return x
		}
	}
}

func (g *Generator) tail32(negative bool) float32 {
	log1p := func(x float32) float32 { return float32(math.Log1p(float64(x))) }
	for {
		x := -float32(tailScale) * log1p(-g.Float32())
		y := -log1p(-g.Float32())
		if y+y > x*x {
			return signed(tailStart+x, negative)
		}
	}
}

func signed[T float32 | float64](x T, negative bool) T {
	if negative {
		return -x
	}
	return x
}
