package errs

import (
	"slices"
	"strings"
)

const (
	suggestCutoff  = 0.6 // similarity below this is noise
	maxSuggestName = 256 // bytes compared per name: bounds the work a hostile id can cause
)

// Suggest returns up to limit ids of known that look most like unknown, best first, ties by name. A name counts
// with its better reading: the whole id, or what follows the last slash. Case is ignored.
func Suggest(unknown string, known []string, limit int) []string {
	q := strings.ToLower(strings.TrimSpace(unknown))
	if q == "" || len(q) > maxSuggestName || limit <= 0 {
		return nil
	}
	type scored struct {
		name  string
		score float64
	}
	var near []scored
	for _, k := range known {
		if k == "" || len(k) > maxSuggestName {
			continue
		}
		l := strings.ToLower(k)
		if s := max(similarity(q, l), similarity(base(q), base(l))); s >= suggestCutoff {
			near = append(near, scored{k, s})
		}
	}
	slices.SortFunc(near, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, n := range near[:min(limit, len(near))] {
		out = append(out, n.name)
	}
	return out
}

func base(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// similarity is 2·M/(len a + len b), M being the bytes in matching blocks found by taking the longest common
// substring (the earliest in a, then in b) and recursing on both sides: Ratcliff and Obershelp, 1988. A value
// that cannot reach suggestCutoff is 0.
func similarity(a, b string) float64 {
	if len(a)+len(b) == 0 {
		return 1
	}
	// Names of very different length cannot reach the cutoff: the cheap bound keeps long hostile ids cheap.
	if 2*float64(min(len(a), len(b)))/float64(len(a)+len(b)) < suggestCutoff {
		return 0
	}
	return 2 * float64(matching(a, b)) / float64(len(a)+len(b))
}

func matching(a, b string) int {
	ai, bi, n := longestCommon(a, b)
	if n == 0 {
		return 0
	}
	return matching(a[:ai], b[:bi]) + n + matching(a[ai+n:], b[bi+n:])
}

func longestCommon(a, b string) (ai, bi, n int) {
	var run [maxSuggestName + 1]int // run[j+1]: length of the common run ending at the previous byte of a and at b[j]
	for i := range len(a) {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] != b[j] {
				run[j+1] = 0
				continue
			}
			run[j+1] = run[j] + 1
			// j runs down, so a tie ending in the same row moves to the smaller start in b.
			if l := run[j+1]; l > n || (l == n && i-l+1 == ai) {
				ai, bi, n = i-l+1, j-l+1, l
			}
		}
	}
	return ai, bi, n
}
