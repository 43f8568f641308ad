package fold

import (
	"fmt"

	"github.com/sie-engine/sie/internal/nprand"
)

// Muvera is a fixed dimensional encoding. R times, random planes cut the space into 2ᵏ parts. The
// tokens of each part are projected to P columns and added up (queries) or averaged (documents).
type Muvera struct {
	Repetitions int   // R
	Bits        int   // k
	Projected   int   // P; 0: identity, P is the tokens' own width
	Final       int   // columns after the count sketch; 0: no sketch
	Seed        int64 // of repetition 0; repetition r has Seed + r

	Normalize    bool // divide the result by its L2 norm; no table depends on this or the next two
	CenterTokens bool // subtract the mean of an item's tokens from them first
	FillEmpty    bool // documents: an empty part takes its nearest token
}

// MuveraTables holds the random numbers of a Muvera for tokens of C columns, in the layout of the
// kernels. It is shared and read-only. An index i stands for the sign +1; ^i, which is negative,
// stands for the index i and the sign −1.
type MuveraTables struct {
	Projected int // P of AMS; 0 where it is nil
	Final     int // columns of Sketch; 0 where it is nil

	Simhash []float32 // [R, C, k] the planes
	AMS     []int32   // [R, C] the target of each column, 0 … P−1; nil for identity
	Sketch  []int32   // [R·2ᵏ·P] the target of each number, 0 … Final−1; nil without a sketch
}

// Check reports why the tables cannot be built for tokens of that many columns, or nil.
func (m Muvera) Check(tokenDim int) error {
	const section = "muvera_config"
	err := check(section,
		field{"num_repetitions", m.Repetitions, 1, maxRepetitions},
		field{"num_simhash_projections", m.Bits, 1, maxBits},
		field{"projection_dim", m.Projected, 0, MaxTokenDim},
		field{"final_projection_dim", m.Final, 0, MaxDims},
		field{"token_dim", tokenDim, 1, MaxTokenDim})
	if err != nil {
		return err
	}
	if m.Seed < 0 {
		return fmt.Errorf("%s.seed is %d; it must not be negative", section, m.Seed)
	}
	if n := m.Unsketched(tokenDim); n > MaxDims {
		return fmt.Errorf(
			"%s: num_repetitions %d · 2^num_simhash_projections %d · %d columns are %d numbers before the sketch; the limit is %d: lower one of them or projection_dim",
			section, m.Repetitions, m.Bits, m.columns(tokenDim), n, MaxDims)
	}
	if n := m.tableBytes(tokenDim); n > MaxTableBytes {
		return fmt.Errorf(
			"%s: num_repetitions %d and num_simhash_projections %d need tables of %d bytes for tokens of %d columns; the limit is %d",
			section, m.Repetitions, m.Bits, n, tokenDim, MaxTableBytes)
	}
	return nil
}

func (m Muvera) columns(tokenDim int) int {
	if m.Projected == 0 {
		return tokenDim
	}
	return m.Projected
}

func (m Muvera) tableBytes(tokenDim int) int {
	n := m.Repetitions * tokenDim * m.Bits
	if m.Projected != 0 {
		n += m.Repetitions * tokenDim
	}
	if m.Sketched(tokenDim) {
		n += m.Unsketched(tokenDim)
	}
	return 4 * n
}

// Unsketched returns the length before the sketch, R·2ᵏ·P.
func (m Muvera) Unsketched(tokenDim int) int { return m.Repetitions << m.Bits * m.columns(tokenDim) }

// Sketched reports whether the sketch is used. A sketch to as many or more columns only loses
// accuracy and is skipped.
func (m Muvera) Sketched(tokenDim int) bool { return m.Final != 0 && m.Final < m.Unsketched(tokenDim) }

// Dims returns the length of the result.
func (m Muvera) Dims(tokenDim int) int {
	if m.Sketched(tokenDim) {
		return m.Final
	}
	return m.Unsketched(tokenDim)
}

// Tables returns the tables for tokens of that many columns. Errors: those of Check.
func (m Muvera) Tables(tokenDim int) (*MuveraTables, error) {
	if err := m.Check(tokenDim); err != nil {
		return nil, err
	}
	// Configurations that need the same tables share them.
	m.Normalize, m.CenterTokens, m.FillEmpty = false, false, false
	if !m.Sketched(tokenDim) {
		m.Final = 0
	}
	return muveraTables.get(cacheKey[Muvera]{m, tokenDim},
		func() *MuveraTables { return m.build(tokenDim) }), nil
}

func (m Muvera) build(tokenDim int) *MuveraTables {
	t := &MuveraTables{Projected: m.Projected, Final: m.Final}
	t.Simhash = make([]float32, 0, m.Repetitions*tokenDim*m.Bits)
	for r := range m.Repetitions {
		g := m.generator(r)
		for range tokenDim * m.Bits {
			t.Simhash = append(t.Simhash, float32(g.Normal()))
		}
	}
	if m.Projected != 0 {
		t.AMS = make([]int32, m.Repetitions*tokenDim)
		for r := range m.Repetitions {
			hash(m.generator(r), t.AMS[r*tokenDim:(r+1)*tokenDim], m.Projected)
		}
	}
	if m.Final != 0 {
		t.Sketch = make([]int32, m.Unsketched(tokenDim))
		hash(m.generator(0), t.Sketch, m.Final)
	}
	return t
}

func (m Muvera) generator(repetition int) *nprand.Generator {
	return nprand.New(uint64(m.Seed) + uint64(repetition))
}

// hash draws an index below n for each element of to, then a sign for each.
func hash(g *nprand.Generator, to []int32, n int) {
	for i := range to {
		to[i] = g.Below(int32(n))
	}
	for i := range to {
		if g.Negative() {
			to[i] = ^to[i]
		}
	}
}
