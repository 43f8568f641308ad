package spans

import (
	"cmp"
	"slices"
	"strings"
)

// Bounds of the published server for models of entities and relations.
const (
	MinThreshold          = 0.1 // of entities, in requests to such models
	MinAdjacencyThreshold = 0.5 // of pairs; a higher threshold of entities raises it
)

// AdjacencyThreshold returns the threshold of pairs for a threshold of entities.
func AdjacencyThreshold(threshold float64) float64 { return max(threshold, MinAdjacencyThreshold) }

// Pairs returns the (head, tail) of the n candidates whose entry of the adjacency matrix [n, n] is
// above the threshold, as the model gives it, in the order of heads, then tails. None is paired
// with itself.
func Pairs(adjacency []float32, n int, threshold float64) [][2]int {
	var out [][2]int
	for head := range n {
		for tail := range n {
			if head != tail && adjacency[head*n+tail] > float32(threshold) {
				out = append(out, [2]int{head, tail})
			}
		}
	}
	return out
}

// AllPairs returns every (head, tail) of n candidates, for models without an adjacency matrix.
func AllPairs(n int) [][2]int {
	var out [][2]int
	for head := range n {
		for tail := range n {
			if head != tail {
				out = append(out, [2]int{head, tail})
			}
		}
	}
	return out
}

// Relation is a relation between two spans of a window, by their places in the list of its spans.
type Relation struct {
	Head, Tail int
	Label      int
	Score      float32
}

// DecodeRelations returns the relations of a window with scores above the threshold, in the order
// of pairs, then labels. found has the window's spans as they were decoded; candidates has the
// (first, last) words of the spans that the model paired, pairs the places of heads and tails among
// them, and logits [pairs, labels] the scores. A candidate stands for the first span with its
// words, and pairs of one that has none are left out.
func DecodeRelations(
	found []Span, candidates, pairs [][2]int, logits []float32, labels int, threshold float64,
) []Relation {
	at := map[[2]int]int{}
	for i, s := range found {
		if _, known := at[[2]int{s.Start, s.End}]; !known {
			at[[2]int{s.Start, s.End}] = i
		}
	}
	var out []Relation
	for i, p := range pairs {
		head, isHead := at[candidates[p[0]]]
		tail, isTail := at[candidates[p[1]]]
		if !isHead || !isTail {
			continue
		}
		for label, logit := range logits[i*labels : (i+1)*labels] {
			if score := Score(logit); float64(score) > threshold {
				out = append(out, Relation{head, tail, label, score})
			}
		}
	}
	return out
}

// Triple is a relation of an item as an answer has it.
type Triple struct {
	Head, Tail, Relation string
	Score                float32
}

// Triples returns the relations of an item from those of its windows: with several windows, each
// head, tail and relation once at its best score. The best come first; equal scores are in the
// order of relation, head and tail.
func Triples(found [][]Triple) []Triple {
	var out []Triple
	at := map[Triple]int{}
	for _, window := range found {
		for _, t := range window {
			key := t
			key.Score = 0
			j, known := at[key]
			switch {
			case !known || len(found) == 1:
				at[key] = len(out)
				out = append(out, t)
			case t.Score > out[j].Score:
				out[j].Score = t.Score
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Triple) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Relation, b.Relation),
			strings.Compare(a.Head, b.Head), strings.Compare(a.Tail, b.Tail))
	})
	return out
}
