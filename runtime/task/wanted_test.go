package task

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sie-engine/sie/runtime/batch"
)

// The results of a chunk are read until the client leaves, and no further.
func TestNobodyReadsWhatNobodyWants(t *testing.T) {
	left := errors.New("the client left")
	ctx, leave := context.WithCancelCause(t.Context())
	r := &run{ctx: ctx}
	var read []int
	put := r.eachOf(func(i int, _ *batch.Result) error {
		if read = append(read, i); i == 6 {
			leave(left)
		}
		return nil
	})
	if err := put(3, make([]batch.Result, 2)); err != nil {
		t.Error(err)
	}
	if err := put(5, make([]batch.Result, 100)); !errors.Is(err, left) {
		t.Error(err)
	}
	if !slices.Equal(read, []int{3, 4, 5, 6}) {
		t.Errorf("read %v", read)
	}
}
