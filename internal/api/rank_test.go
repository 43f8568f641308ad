package api

import (
	"math"
	"reflect"
	"testing"
)

// The rank of equal scores is their order in the request, and NaN or infinity is reported.
func TestRank(t *testing.T) {
	got, finite := Rank([]float64{1, 3, 1, 2, 3, math.Copysign(0, -1), 0})
	if !finite || !reflect.DeepEqual(got, []int{1, 4, 3, 0, 2, 5, 6}) {
		t.Errorf("%v, %v", got, finite)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, finite := Rank([]float64{1, v}); finite {
			t.Errorf("%v has a rank", v)
		}
	}
}
