package batch

import "testing"

// The pairs within a window are counted as they are.
func TestWorkOfWindows(t *testing.T) {
	for _, window := range []int{1, 2, 5, 64} {
		for _, n := range []int{0, 1, 2, 3, 5, 6, 7, 64, 65, 66, 300} {
			near := 0
			for i := range n {
				for j := range n {
					if max(i-j, j-i) <= window {
						near++
					}
				}
			}
			w := Work{PerToken: 7, PerPair: 3, PerNear: 2, Window: window}
			if got, want := w.of(n), float64(7*n+3*n*n+2*near); got != want {
				t.Errorf("%d tokens, window %d: %v, expected %v", n, window, got, want)
			}
		}
	}
}
