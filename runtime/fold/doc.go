// Package fold says how a multivector, the vectors of a text's tokens, is folded into one vector:
// densely by [Muvera] (MUVERA, arXiv:2405.19504), sparsely by [SMVE]. Both hash tokens with random
// tables. This package makes them, number by number those of sie-server 0.10.1, so that its vectors
// and ours go into one index; the kernels (sie_muvera_args and sie_smve_args in kernels/ops.h) do
// the rest.
//
// A configuration is a small comparable value. Its Tables are built once for all who ask while
// somebody holds them, and belong to the garbage collector after; they are shared and read-only.
// Errors name the key of the model's configuration.
//
// Safe for concurrent use. It starts no goroutines.
package fold

import "fmt"

// The limits. A result of 16 Mi numbers takes 64 MiB for one text; the catalog has the same limit.
const (
	MaxDims       = 1 << 24
	MaxTokenDim   = 1 << 16
	MaxTableBytes = 1 << 30 // of one configuration: SMVE's usual 65,536 anchors of 2,048 numbers take half of it

	maxRepetitions = 4096
	maxBits        = 10 // of a partition's number, in all kernels
)

// field is a number of a configuration and what it may be.
type field struct {
	key             string
	value, from, to int
}

func check(section string, fields ...field) error {
	for _, f := range fields {
		if f.value < f.from || f.value > f.to {
			return fmt.Errorf("%s.%s is %d; %d to %d is possible", section, f.key, f.value, f.from, f.to)
		}
	}
	return nil
}
