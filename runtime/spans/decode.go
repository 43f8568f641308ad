package spans

import "fmt"

// MaxCandidates is how many spans of a window DecodePairs takes into its search.
const MaxCandidates = 1 << 20

// Candidate is a score of a span model: words Start to Start+Width, so that a single word has the
// width 0.
type Candidate struct {
	Start, Width, Label int32
	Logit               float32
}

// DecodeSpans returns the spans of a window of a span model in the order of their starts. The
// candidates ascend by start, then width, then label; those with scores not above the threshold,
// and those beyond the window's words, are left out here. The threshold counts as float32, as in
// the reference.
func DecodeSpans(candidates []Candidate, words int, d Decoding) []Span {
	threshold := float32(d.Threshold)
	var found []Span
	for _, c := range candidates {
		if score := Score(c.Logit); score > threshold && int(c.Start)+int(c.Width) < words {
			found = append(found, Span{int(c.Start), int(c.Start) + int(c.Width), int(c.Label), score})
		}
	}
	return greedy(found, words, d)
}

// Pair holds the scores of a token model for a word and a label: that an entity of the label starts
// there, ends there, and goes on there.
type Pair struct {
	Word, Label        int32
	Start, End, Inside float32 // logits
}

// DecodePairs returns the spans of a window of a token model in the order of their starts. A span
// begins and ends where the scores of its label are above the threshold, and the inside scores of
// all its words are not below; its score is the smallest of all these. The pairs ascend by word,
// then label, and lie within the window's words; one that is not given counts as three scores of 0,
// so that those whose logits are all below LogitFloor may be left out.
//
// It is an error when more than MaxCandidates spans begin and end so: the threshold is too low to
// tell entities from words.
func DecodePairs(pairs []Pair, words int, d Decoding) ([]Span, error) {
	var found []Span
	full := false
	walk(pairs, float32(d.Threshold), func(inside float32) bool { return float64(inside) >= d.Threshold },
		func(s Span) bool {
			if full = len(found) == MaxCandidates; !full {
				found = append(found, s)
			}
			return !full
		})
	if full {
		return nil, fmt.Errorf(
			"threshold %v lets more than %d spans of %d words be entities; raise it",
			d.Threshold, MaxCandidates, words)
	}
	return greedy(found, words, d), nil
}

// walk calls give for each span that begins and ends where a label's scores are above edge, and all
// of whose inside scores pass goesOn; in the order of starts, then labels, then ends, until give
// returns false.
func walk(pairs []Pair, edge float32, goesOn func(inside float32) bool, give func(Span) bool) {
	next := sameLabel(pairs)
	for i, first := range pairs {
		if !(Score(first.Start) > edge) {
			continue
		}
		least := Score(first.Start)
		// j goes over the words of the span, which may end at each of them.
		for j, word := i, first.Word; j >= 0 && pairs[j].Word == word; j, word = next[j], word+1 {
			inside := Score(pairs[j].Inside)
			if !goesOn(inside) {
				break
			}
			least = min(least, inside)
			if end := Score(pairs[j].End); end > edge &&
				!give(Span{int(first.Word), int(word), int(first.Label), min(least, end)}) {
				return
			}
		}
	}
}

// sameLabel returns for each pair the index of the next one with its label, or −1.
func sameLabel(pairs []Pair) []int {
	next := make([]int, len(pairs))
	last := map[int32]int{}
	for i := len(pairs) - 1; i >= 0; i-- {
		next[i] = -1
		if j, ok := last[pairs[i].Label]; ok {
			next[i] = j
		}
		last[pairs[i].Label] = i
	}
	return next
}
