package fold

import (
	"fmt"
	"math"

	"github.com/sie-engine/sie/internal/nprand"
)

// SMVE is a sparse multi-vector encoding (Spisak and Galovic, "SMVE: Multi-Vector Retrieval That
// Just Works", 2026): each token keeps its Top largest products with Width random unit vectors, its
// anchors; the tokens' are added up by anchor (queries), or divided by how many there are
// (documents).
type SMVE struct {
	Repetitions int
	Width       int   // anchors of a repetition
	Top         int   // that a token keeps, of each repetition
	MaxNonzeros int   // largest values of an item that stay; 0: all
	Seed        int64 // of repetition 0; repetition r has Seed + r
}

// SMVETables are the anchors of an SMVE for tokens of C columns. They are shared: do not write.
type SMVETables struct {
	Anchors []float32 // [Repetitions, Width, C], each of unit length
}

// Check reports what cannot be built for tokens of that many columns.
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
		return fmt.Errorf("%s: width %d times num_repetitions %d are %d columns; the limit is %d", section, s.Width, s.Repetitions, n, MaxDims)
	}
	if n := 4 * s.Dims() * tokenDim; n > MaxTableBytes {
		return fmt.Errorf("%s: width %d and num_repetitions %d need anchors of %d bytes for tokens of %d columns; the limit is %d",
			section, s.Width, s.Repetitions, n, tokenDim, MaxTableBytes)
	}
	return nil
}

// Dims is the number of columns of the result.
func (s SMVE) Dims() int { return s.Repetitions * s.Width }

// Room is the most columns that the result of so many tokens has; 1 where there are none.
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
	return smveTables.get(keyOf[SMVE]{s, tokenDim}, func() *SMVETables { return s.build(tokenDim) }), nil
}

func (s SMVE) build(tokenDim int) *SMVETables {
	anchors := make([]float32, s.Dims()*tokenDim)
	squares := make([]float32, s.Width)
	for r := range s.Repetitions {
		of := anchors[r*s.Width*tokenDim : (r+1)*s.Width*tokenDim]
		g := nprand.New(uint64(s.Seed) + uint64(r))
		clear(squares)
		// NumPy has them as [C, Width]: drawn row by row, and an anchor's squares added in float32
		// in that order.
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
