package task

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Places are found whatever the order they are asked in, and entities inside others, as a model
// without flat_ner finds them, do not have the text read again for each.
func TestPlacesInAText(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	text := strings.Repeat("aé漢😀", 500)
	runes := []rune(text)
	p := place{text: text}
	for range 2000 {
		point := r.IntN(len(runes) + 3)
		if got, want := p.to(point), len(string(runes[:min(point, len(runes))])); got != want {
			t.Fatalf("code point %d is at byte %d, want %d", point, got, want)
		}
	}
	const width = 40
	p = place{text: strings.Repeat("é", 100_000)}
	entities := 0
	for start := 0; start+width < 100_000; start += width {
		for inside := range width / 2 { // each inside the one before
			p.to(start + inside)
			p.to(start + width - inside)
			entities++
		}
	}
	if most := 100_000 + 2*width*entities; p.walked > most {
		t.Errorf("%d entities: %d code points, want at most %d", entities, p.walked, most)
	}
	p = place{text: p.text}
	p.to(90_000)
	if p.to(10); p.walked != 90_010 {
		t.Errorf("%d code points to one near the beginning", p.walked)
	}
	broken := "a\xe4\xb8b\xffc"
	p = place{text: broken}
	var there, back []int
	for i := range 7 {
		there = append(there, p.to(i))
	}
	for i := range 7 {
		back = append(back, p.to(6-i))
	}
	if slices.Reverse(back); !slices.Equal(there, back) || there[6] != len(broken) {
		t.Errorf("bytes that are no text: %v, back %v", there, back)
	}
}
