package spans

import (
	"cmp"
	"math"
	"slices"
)

// greedy returns the spans that the package's greedy search keeps: it takes them by falling score,
// equal ones in the order given, and keeps each that conflicts with none kept. It works on found in
// place. Spans are inside n words. The result is in the order of their starts; spans of one start
// are in the order in which they were kept.
//
// A span costs as many steps as it has words, however many are kept.
func greedy(found []Span, n int, d Decoding) []Span {
	slices.SortStableFunc(found, func(a, b Span) int { return cmp.Compare(b.Score, a.Score) })
	k := newKeeper(n, d)
	kept := found[:0]
	for _, s := range found {
		if k.keep(s.Start, s.End) {
			kept = append(kept, s)
		}
	}
	slices.SortStableFunc(kept, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	return kept
}

// keeper knows the spans that are kept and says which others conflict with them.
type keeper struct {
	d     Decoding
	least []int32             // nested: by last word, the first word of the widest span kept
	most  []int32             // nested: by first word, the last word of the widest span kept
	cover []int32             // flat: by word, 1 + the first word of the span that covers it
	until []int32             // flat: by first word, the last word of the span kept there
	same  map[[2]int]struct{} // nested: the spans kept
}

func newKeeper(n int, d Decoding) *keeper {
	k := &keeper{d: d}
	if d.FlatNER {
		k.cover, k.until = make([]int32, n), make([]int32, n)
		return k
	}
	k.least, k.most, k.same = make([]int32, n), make([]int32, n), map[[2]int]struct{}{}
	for i := range n {
		k.least[i], k.most[i] = math.MaxInt32, -1
	}
	return k
}

// keep keeps the span of words start to end unless it conflicts with one kept: unless it is one of
// them and spans have one label, or shares words with one and neither lies inside the other, or
// shares words at all when spans are flat.
func (k *keeper) keep(start, end int) bool {
	if k.d.FlatNER {
		return k.flat(start, end)
	}
	if _, is := k.same[[2]int{start, end}]; is {
		return k.d.MultiLabel
	}
	for i := start; i < end; i++ {
		if int(k.least[i]) < start || int(k.most[i+1]) > end {
			return false
		}
	}
	k.same[[2]int{start, end}] = struct{}{}
	k.least[end] = min(k.least[end], int32(start))
	k.most[start] = max(k.most[start], int32(end))
	return true
}

func (k *keeper) flat(start, end int) bool {
	if int(k.cover[start]) == start+1 && int(k.until[start]) == end {
		return k.d.MultiLabel
	}
	for i := start; i <= end; i++ {
		if k.cover[i] != 0 {
			return false
		}
	}
	for i := start; i <= end; i++ {
		k.cover[i] = int32(start) + 1
	}
	k.until[start] = int32(end)
	return true
}
