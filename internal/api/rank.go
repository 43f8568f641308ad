package api

import (
	"math"
	"slices"
)

// Rank returns the indices of scores, best first; equal scores keep their order. If a score is NaN
// or infinite there is no order, and finite is false.
func Rank(scores []float64) (order []int, finite bool) {
	order = make([]int, len(scores))
	for i, v := range scores {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, false
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order, true
}
