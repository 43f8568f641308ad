package spans

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// step is walk by its definition: word after word from each start.
func step(pairs []Pair, edge float32, goesOn func(float32) bool, give func(Span) bool) {
	at := map[[2]int32]Pair{}
	for _, p := range pairs {
		at[[2]int32{p.Word, p.Label}] = p
	}
	for _, first := range pairs {
		if !(Score(first.Start) > edge) {
			continue
		}
		least := Score(first.Start)
		for word := first.Word; ; word++ {
			p, ok := at[[2]int32{word, first.Label}]
			inside := Score(p.Inside)
			if !ok || !goesOn(inside) {
				break
			}
			least = min(least, inside)
			if end := Score(p.End); end > edge &&
				!give(Span{int(first.Word), int(word), int(first.Label), min(least, end)}) {
				return
			}
		}
	}
}

// walk gives what its definition gives, in the same order, and stops where it is told to.
func TestWalkIsTheSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	logit := func() float32 {
		return []float32{-3, -1, 0, 1, 3, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
			float32(r.NormFloat64())}[r.IntN(9)]
	}
	given := 0
	for range 3000 {
		var pairs []Pair
		for word := range r.IntN(12) {
			for label := range 1 + r.IntN(3) {
				if r.IntN(5) > 0 {
					pairs = append(pairs, Pair{int32(word), int32(label), logit(), logit(), logit()})
				}
			}
		}
		edge := []float32{0, 0.3, 0.5, 0.9}[r.IntN(4)]
		most := r.IntN(20)
		all := func(f func([]Pair, float32, func(float32) bool, func(Span) bool)) (out []Span) {
			f(pairs, edge, func(inside float32) bool { return inside >= edge }, func(s Span) bool {
				out = append(out, s)
				return len(out) < most
			})
			return out
		}
		got, want := all(walk), all(step)
		given += len(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%+v above %v: %v, want %v", pairs, edge, got, want)
		}
	}
	if given < 3000 {
		t.Errorf("only %d spans", given)
	}
}

// Entities that begin and go on everywhere and end nowhere, or at the last word alone, take a few
// steps for each pair, and not as many as the text has words.
func TestWalkOverWhatEndsNowhere(t *testing.T) {
	const count = 5000
	for _, last := range []float32{-9, 9} {
		pairs := make([]Pair, count)
		for i := range pairs {
			pairs[i] = Pair{Word: int32(i), Start: 9, Inside: 9, End: -9}
		}
		pairs[count-1].End = last
		looks, spans := 0, 0
		walk(pairs, 0.5, func(inside float32) bool { looks++; return inside > 0.5 },
			func(Span) bool { spans++; return true })
		if want := map[float32]int{-9: 0, 9: count}[last]; spans != want || looks > 4*count {
			t.Errorf("%d spans, want %d; %d looks at %d pairs", spans, want, looks, count)
		}
	}
}
