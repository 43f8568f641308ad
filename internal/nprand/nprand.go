// Package nprand draws the same numbers as NumPy's default_rng from the same seed. The tables of
// MUVERA and SMVE are made of them, and every client and index that uses these encodings relies on
// the same tables.
//
// Entry point: [New]. A [Generator] is a PCG64 (XSL-RR) seeded by SeedSequence, as in NumPy 1.17 to
// 2.4. Its draws equal those of numpy.random.Generator's random, normal, standard_normal, integers
// and choice, call by call. There is one exception: in the tails of normals, one draw in 3,800, the
// last bit depends on the mathematics library, which is the system's for NumPy and Go's here.
//
// It is not for secrets and starts no goroutines. One goroutine at a time may use a Generator.
package nprand

import "math/bits"

// Generator draws the numbers of numpy.random.Generator(PCG64(seed)).
type Generator struct {
	state, increment wide
	half             uint32 // the upper half of Uint32's last draw of 64 bits
	hasHalf          bool
}

// wide is a number of 128 bits, modulo 2¹²⁸.
type wide struct{ hi, lo uint64 }

func (a wide) add(b wide) wide {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return wide{hi, lo}
}

func (a wide) mul(b wide) wide {
	hi, lo := bits.Mul64(a.lo, b.lo)
	return wide{hi + a.hi*b.lo + a.lo*b.hi, lo}
}

// multiplier is that of PCG's 128-bit congruential generator (O'Neill 2014, HMC-CS-2014-0905).
var multiplier = wide{0x2360ED051FC65DA4, 0x4385DF649FCCF645}

// New returns default_rng(seed).
func New(seed uint64) *Generator {
	w := seedWords(seed)
	sequence := wide{w[2], w[3]}
	g := &Generator{increment: wide{sequence.hi<<1 | sequence.lo>>63, sequence.lo<<1 | 1}}
	g.step()
	g.state = g.state.add(wide{w[0], w[1]})
	g.step()
	return g
}

func (g *Generator) step() { g.state = g.state.mul(multiplier).add(g.increment) }

// Uint64 draws 64 bits. It does not use or change the half that Uint32 has kept.
func (g *Generator) Uint64() uint64 {
	g.step()
	return bits.RotateLeft64(g.state.hi^g.state.lo, -int(g.state.hi>>58))
}

// Uint32 draws 32 bits: the lower half of a draw, then its upper half.
func (g *Generator) Uint32() uint32 {
	if g.hasHalf {
		g.hasHalf = false
		return g.half
	}
	draw := g.Uint64()
	g.half, g.hasHalf = uint32(draw>>32), true
	return uint32(draw)
}

// Float64 returns random(): uniform in [0, 1), a multiple of 2⁻⁵³.
func (g *Generator) Float64() float64 { return float64(g.Uint64()>>11) * (1.0 / (1 << 53)) }

// Float32 returns random(dtype=float32): uniform in [0, 1), a multiple of 2⁻²⁴.
func (g *Generator) Float32() float32 { return float32(g.Uint32()>>8) * (1.0 / (1 << 24)) }

// Below returns integers(0, n), by Lemire's method (arXiv:1805.10941); n must be positive. For n =
// 1 it draws nothing.
func (g *Generator) Below(n int32) int32 {
	if n <= 0 {
		panic("nprand: Below needs a positive bound")
	}
	if n == 1 {
		return 0
	}
	product := uint64(g.Uint32()) * uint64(n)
	if uint32(product) < uint32(n) {
		for threshold := -uint32(n) % uint32(n); uint32(product) < threshold; {
			product = uint64(g.Uint32()) * uint64(n)
		}
	}
	return int32(product >> 32)
}

// Negative returns choice([-1, +1]) < 0.
func (g *Generator) Negative() bool { return g.Below(2) == 0 }
