// Package fold makes the random tables that fold a multivector into one vector. A multivector is
// the vectors of a text's tokens. [Muvera] (MUVERA, arXiv:2405.19504) folds it into a dense vector,
// [SMVE] into a sparse one. Both hash tokens with random tables. The tables equal those of
// sie-server 0.10.1 number by number, so that vectors of both can share an index. The kernels
// (sie_muvera_args and sie_smve_args in kernels/ops.h) do the folding.
//
// A configuration is a small comparable value. Its Tables are built once for all callers and live
// as long as one of them holds the result; then the garbage collector frees them. They are shared
// and read-only. Errors name the key of the model's configuration.
//
// Safe for concurrent use. It starts no goroutines.
package fold

import "fmt"

// The limits. A result of 16 Mi numbers takes 64 MiB for one text. The catalog has the same limit.
const (
	MaxDims     = 1 << 24
	MaxTokenDim = 1 << 16
	// of one configuration; SMVE's usual 65,536 anchors of 2,048 numbers take half of it
	MaxTableBytes = 1 << 30

	maxRepetitions = 4096
	maxBits        = 10 // of a part's number, in all kernels
)

// field is a number of a configuration and its allowed range.
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
