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
// returns false. Its steps are as many as pairs and spans that it gives.
func walk(pairs []Pair, edge float32, goesOn func(inside float32) bool, give func(Span) bool) {
	next := ends(pairs, edge, goesOn)
	for i, first := range pairs {
		start, inside := Score(first.Start), Score(first.Inside)
		if !(start > edge) || !goesOn(inside) {
			continue
		}
		least := min(start, inside)
		for j := i; ; {
			if end := Score(pairs[j].End); end > edge &&
				!give(Span{int(first.Word), int(pairs[j].Word), int(first.Label), min(least, end)}) {
				return
			}
			to := next[j]
			if to.pair < 0 {
				break
			}
			j, least = to.pair, min(least, to.inside)
		}
	}
}

// onward says where a span that has come to a pair may end next: pair is −1 if nowhere, and inside
// the smallest inside score of the words behind the former up to the latter.
type onward struct {
	pair   int
	inside float32
}

// ends returns for each pair where the spans that go on behind it may end next.
func ends(pairs []Pair, edge float32, goesOn func(inside float32) bool) []onward {
	next := make([]onward, len(pairs))
	last := map[int32]int{} // the pair of each label that was seen last
	for i := len(pairs) - 1; i >= 0; i-- {
		next[i].pair = -1
		j, ok := last[pairs[i].Label]
		last[pairs[i].Label] = i
		if !ok || pairs[j].Word != pairs[i].Word+1 {
			continue
		}
		inside := Score(pairs[j].Inside)
		switch {
		case !goesOn(inside):
		case Score(pairs[j].End) > edge:
			next[i] = onward{j, inside}
		case next[j].pair >= 0:
			next[i] = onward{next[j].pair, min(inside, next[j].inside)}
		}
	}
	return next
}
