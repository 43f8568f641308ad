package fold

import (
	"fmt"
	"math"

	"github.com/sie-engine/sie/internal/nprand"
)

// SMVE is a sparse multi-vector encoding (Spisak and Galovic, "SMVE: Multi-Vector Retrieval That
// Just Works", 2026). Width random unit vectors are the anchors. Each token keeps its Top largest
// products with the anchors. The products are added up by anchor over the tokens (queries); for
// documents each sum is divided by the number of its products.
type SMVE struct {
	Repetitions int
	Width       int   // anchors of a repetition
	Top         int   // products that a token keeps, in each repetition
	MaxNonzeros int   // values of an item that are kept, the largest; 0: all
	Seed        int64 // of repetition 0; repetition r has Seed + r
}

// SMVETables holds the anchors of an SMVE for tokens of C columns. It is shared and read-only.
type SMVETables struct {
	Anchors []float32 // [Repetitions, Width, C], each of unit length
}

// Check reports why the tables cannot be built for tokens of that many columns, or nil.
func (s SMVE) Check(tokenDim int) error {
	const section = "smve_config"
	err := check(section,
		field{"width", s.Width, 1, MaxDims},
		field{"k", s.Top, 1, s.Width},
		field{"num_repetitions", s.Repetitions, 1, maxRepetitions},
		field{"max_nonzeros", s.MaxNonzeros, 0, MaxDims},
		field{"token_dim", tokenDim, 1, MaxTokenDim})
	if err != nil {
		return err
	}
	if s.Seed < 0 {
		return fmt.Errorf("%s.seed is %d; it must not be negative", section, s.Seed)
	}
	if n := s.Dims(); n > MaxDims {
		return fmt.Errorf("%s: width %d times num_repetitions %d are %d columns; the limit is %d",
			section, s.Width, s.Repetitions, n, MaxDims)
	}
	if n := 4 * s.Dims() * tokenDim; n > MaxTableBytes {
		return fmt.Errorf(
			"%s: width %d and num_repetitions %d need anchors of %d bytes for tokens of %d columns; the limit is %d",
			section, s.Width, s.Repetitions, n, tokenDim, MaxTableBytes)
	}
	return nil
}

// Dims returns the number of columns of the result.
func (s SMVE) Dims() int { return s.Repetitions * s.Width }

// Room returns the largest number of columns above 0 in the result of that many tokens, at least 1.
func (s SMVE) Room(tokens int) int {
	room := min(s.Dims(), tokens*s.Repetitions*s.Top)
	if s.MaxNonzeros != 0 {
		room = min(room, s.MaxNonzeros)
	}
	return max(room, 1)
}

// Tables returns the anchors for tokens of that many columns. Errors: those of Check.
func (s SMVE) Tables(tokenDim int) (*SMVETables, error) {
	if err := s.Check(tokenDim); err != nil {
		return nil, err
	}
	s.Top, s.MaxNonzeros = 0, 0 // no anchor depends on them
	return smveTables.get(cacheKey[SMVE]{s, tokenDim}, func() *SMVETables { return s.build(tokenDim) }), nil
}

func (s SMVE) build(tokenDim int) *SMVETables {
	anchors := make([]float32, s.Dims()*tokenDim)
	squares := make([]float32, s.Width)
	for r := range s.Repetitions {
		of := anchors[r*s.Width*tokenDim : (r+1)*s.Width*tokenDim]
		g := nprand.New(uint64(s.Seed) + uint64(r))
		clear(squares)
		// NumPy has the anchors as [C, Width]. Numbers are drawn row by row, and an anchor's
		// squares are added in float32 in that order.
		for c := range tokenDim {
			for a := range s.Width {
				x := g.Normal32()
				of[a*tokenDim+c] = x
				squares[a] += float32(x * x)
			}
		}
		for a := range s.Width {
			norm := float32(math.Sqrt(float64(squares[a])))
			anchor := of[a*tokenDim : (a+1)*tokenDim]
			for c := range anchor {
				anchor[c] /= norm
			}
		}
	}
	return &SMVETables{Anchors: anchors}
}
