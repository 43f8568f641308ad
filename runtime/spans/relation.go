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

// Candidates returns the (first, last) words of the spans that a span model pairs, at most most of
// them: those with a score above the threshold for some label, in the order of candidates.
func Candidates(candidates []Candidate, words int, threshold float64, most int) [][2]int {
	var out [][2]int
	for _, c := range candidates {
		first, last := int(c.Start), int(c.Start+c.Width)
		if !(Score(c.Logit) > float32(threshold)) || last >= words {
			continue
		}
		if n := len(out); n > 0 && out[n-1] == [2]int{first, last} {
			continue // the same span with another label
		}
		if len(out) == most {
			break
		}
		out = append(out, [2]int{first, last})
	}
	return out
}

// PairCandidates is Candidates for a token model. It pairs the spans that DecodePairs searches,
// except that an inside score must be above the threshold, too. A span of two labels is there
// twice.
func PairCandidates(pairs []Pair, threshold float64, most int) (out [][2]int) {
	edge := float32(threshold)
	walk(pairs, edge, func(inside float32) bool { return inside > edge }, func(s Span) bool {
		if len(out) == most {
			return false
		}
		out = append(out, [2]int{s.Start, s.End})
		return true
	})
	return out
}

// Link is the score of a relation between two candidates, by their places.
type Link struct {
	Head, Tail, Label int
	Logit             float32
}

// Adjacent returns the links whose entry of the adjacency matrix [n, n] of the candidates is above
// the threshold. It works on links in place.
func Adjacent(links []Link, adjacency []float32, n int, threshold float64) []Link {
	return slices.DeleteFunc(links, func(l Link) bool {
		return !(adjacency[l.Head*n+l.Tail] > float32(threshold))
	})
}

// Relation is a relation between two spans of a window, by their places in the list of its spans.
type Relation struct {
	Head, Tail int
	Label      int
	Score      float32
}

// DecodeRelations returns the relations of a window with scores above the threshold, in the order
// of heads, then tails, then labels. found has the window's spans as they were decoded, candidates
// the (first, last) words of the spans that links name. A candidate stands for the first span with
// its words; links of one that has none, and of a candidate with itself, are left out. It sorts
// links.
func DecodeRelations(found []Span, candidates [][2]int, links []Link, threshold float64) []Relation {
	at := places(found)
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Tail, b.Tail), cmp.Compare(a.Label, b.Label))
	})
	var out []Relation
	for _, l := range links {
		head, isHead := at[candidates[l.Head]]
		tail, isTail := at[candidates[l.Tail]]
		if score := Score(l.Logit); isHead && isTail && l.Head != l.Tail && float64(score) > threshold {
			out = append(out, Relation{head, tail, l.Label, score})
		}
	}
	return out
}

// Decoded returns the candidates that stand for a span that was decoded.
func Decoded(candidates [][2]int, found []Span) (out [][2]int) {
	at := places(found)
	for _, c := range candidates {
		if _, is := at[c]; is {
			out = append(out, c)
		}
	}
	return out
}

// places returns the place of the first span with the same words.
func places(found []Span) map[[2]int]int {
	at := map[[2]int]int{}
	for i, s := range found {
		if _, known := at[[2]int{s.Start, s.End}]; !known {
			at[[2]int{s.Start, s.End}] = i
		}
	}
	return at
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
