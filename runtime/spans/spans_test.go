package spans

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/words"
)

// naive is the greedy search as the package writes it: each span against all that are kept.
func naive(found []Span, d Decoding) []Span {
	slices.SortStableFunc(found, func(a, b Span) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	var kept []Span
	for _, s := range found {
		if !slices.ContainsFunc(kept, func(o Span) bool {
			switch {
			case s.Start == o.Start && s.End == o.End:
				return !d.MultiLabel
			case s.Start > o.End || o.Start > s.End:
				return false
			case d.FlatNER:
				return true
			}
			return !(s.Start <= o.Start && o.End <= s.End || o.Start <= s.Start && s.End <= o.End)
		}) {
			kept = append(kept, s)
		}
	}
	slices.SortStableFunc(kept, func(a, b Span) int { return a.Start - b.Start })
	return kept
}

// The greedy search that looks at words keeps what the one that looks at spans keeps.
func TestGreedyIsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	for range 3000 {
		n := 1 + rng.IntN(20)
		d := Decoding{FlatNER: rng.IntN(2) == 0, MultiLabel: rng.IntN(2) == 0}
		found := make([]Span, rng.IntN(60))
		for i := range found {
			start := rng.IntN(n)
			found[i] = Span{start, start + rng.IntN(n-start), rng.IntN(3), float32(rng.IntN(9)) / 8}
		}
		want := naive(slices.Clone(found), d)
		if got := greedy(slices.Clone(found), n, d); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v of %v: %v, want %v", d, found, got, want)
		}
	}
}

// Every score above a threshold, or at it, has a logit above the floor.
func TestLogitFloor(t *testing.T) {
	for _, threshold := range []float64{0, 1e-30, 1e-6, 0.1, 0.3, 0.5, 0.9, 0.999999, 1 - 1e-9, 1} {
		floor := LogitFloor(threshold)
		for logit := float32(-120); logit < 120; logit += 0.0625 {
			if float64(Score(logit)) >= threshold && logit < floor {
				t.Errorf("threshold %v: the logit %v has the score %v; the floor is %v",
					threshold, logit, Score(logit), floor)
			}
		}
		if !(floor < 17) {
			t.Errorf("threshold %v: floor %v", threshold, floor)
		}
	}
	if !math.IsInf(float64(LogitFloor(math.NaN())), -1) {
		t.Error("the floor of no number leaves something out")
	}
}

func TestScoreEnds(t *testing.T) {
	for logit, want := range map[float32]float32{
		0: 0.5, 100: 1, -200: 0, float32(math.Inf(1)): 1, float32(math.Inf(-1)): 0,
	} {
		if got := Score(logit); got != want {
			t.Errorf("the score of %v is %v, want %v", logit, got, want)
		}
	}
}

// A threshold that tells nothing apart is an error, not a search without end.
func TestTooManySpans(t *testing.T) {
	pairs := func(n int) []Pair {
		out := make([]Pair, n)
		for i := range out {
			out[i] = Pair{Word: int32(i)}
		}
		return out
	}
	d := Decoding{Threshold: 0.1, FlatNER: true}
	// 1447 words have 1447·1448/2 = 1047628 spans; 1448 have 1049076.
	if found, err := DecodePairs(pairs(1447), 1447, d); err != nil || len(found) != 1447 {
		t.Errorf("%d spans, %v", len(found), err)
	}
	_, err := DecodePairs(pairs(1448), 1448, d)
	if err == nil || !strings.Contains(err.Error(), "threshold 0.1") {
		t.Errorf("error %v", err)
	}
}

// A token model's spans need every word: one that is not given ends them.
func TestPairsLeftOut(t *testing.T) {
	yes := func(word int32) Pair { return Pair{word, 0, 3, 3, 3} }
	found, err := DecodePairs([]Pair{yes(0), yes(2)}, 3, Decoding{Threshold: 0.5})
	if err != nil || len(found) != 2 || found[0].End != 0 || found[1].Start != 2 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestEntitiesHavePlacesOfWords(t *testing.T) {
	var in []words.Word
	for w := range words.Split("é 日本-x, 👍🏽") {
		in = append(in, w)
	}
	got := Entities([]Span{{0, 1, 2, 0.5}, {3, 4, 0, 1}}, in)
	if want := []Entity{{0, 6, 2, 0.5}, {8, 10, 0, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestUnionOptionsAreChecked(t *testing.T) {
	for name, spoil := range map[string]func(*UnionOptions){
		"score_floor":      func(o *UnionOptions) { o.ScoreFloor = math.NaN() },
		"window_words":     func(o *UnionOptions) { o.WindowWords = 1 },
		"window_overlap":   func(o *UnionOptions) { o.WindowOverlap = o.WindowWords },
		"name_min_letters": func(o *UnionOptions) { o.NameMinLetters = 0 },
	} {
		o := DefaultUnionOptions
		if _, err := o.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(&o)
		option, err := o.Check()
		if option != name || err == nil || !strings.HasPrefix(err.Error(), name+" ") {
			t.Errorf("%s: %s, %v", name, option, err)
		}
	}
}

func TestAdjacencyThreshold(t *testing.T) {
	if a, b := AdjacencyThreshold(0.1), AdjacencyThreshold(0.7); a != 0.5 || b != 0.7 {
		t.Errorf("thresholds %v and %v", a, b)
	}
}

// A look for an overlap finds what a look at every entity finds, and compares as few entities as a
// binary search, also where thousands of other labels lie on the same words.
func TestOverlapsLooksAtFew(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		found := make([]Entity, r.IntN(12))
		for i := range found {
			start := r.IntN(20)
			found[i] = Entity{Start: start, End: start + 1 + r.IntN(6), Label: r.IntN(3)}
		}
		e := Entity{Start: r.IntN(20), Label: r.IntN(3)}
		e.End = e.Start + 1 + r.IntN(6)
		want := slices.ContainsFunc(found, func(o Entity) bool {
			return o.Label == e.Label && o.Start < e.End && e.Start < o.End
		})
		if got := place(found).overlaps(e); got != want {
			t.Fatalf("%v overlaps one of %v: %v", e, found, got)
		}
	}
	const labels, wide = words.MaxLabels, words.OverlapWords
	var found []Entity
	for end := range wide {
		for label := range labels {
			found = append(found, Entity{Start: 0, End: end + 1, Label: 2 * label})
		}
	}
	p := place(found)
	for label := range 2 * labels {
		if p.overlaps(Entity{Start: 0, End: wide, Label: label}) != (label%2 == 0) {
			t.Fatalf("label %d", label)
		}
	}
	if most := 2 * labels * (bits.Len(uint(len(found))) + 1); p.looked > most {
		t.Errorf("%d entities are looked at %d times for %d, want at most %d", len(found), p.looked,
			2*labels, most)
	}
}
