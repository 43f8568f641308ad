package nulldev

import (
	"slices"
	"testing"
	"time"
)

// Answers depend on the model, the role and the text, and on nothing else. The numbers below are
// those of every release: tests on other machines know them.
func TestAnswersAreKnown(t *testing.T) {
	if got, want := Dense("m", Document, "hello", 4),
		[]float32{-0.03198135, 0.35413468, 0.16069424, -0.27103174}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	seen := map[float32]string{}
	for _, c := range [][3]string{
		{"m", Document, "a"}, {"m", Query, "a"}, {"n", Document, "a"}, {"m", Document, "b"},
		{"m", Document, ""}, {"md", "ocument", "a"},
	} {
		v := Dense(c[0], c[1], c[2], 384)
		if other, twice := seen[v[0]]; twice {
			t.Errorf("%v and %s are equal", c, other)
		}
		seen[v[0]] = c[2]
		if !slices.Equal(v, Dense(c[0], c[1], c[2], 384)) ||
			!slices.Equal(v[:10], Dense(c[0], c[1], c[2], 10)) {
			t.Errorf("%v: two answers", c)
		}
		for _, x := range v {
			if x < -1 || x >= 1 {
				t.Fatalf("%v holds %v", c, x)
			}
		}
		for _, vocab := range []int{1, 7, 16, 30_522} {
			columns, weights := Sparse(c[0], c[1], c[2], vocab)
			if len(columns) != min(16, vocab) || len(weights) != len(columns) || !slices.IsSorted(columns) ||
				int(columns[len(columns)-1]) >= vocab || len(slices.Compact(columns)) != len(weights) {
				t.Errorf("%v of %d: %v %v", c, vocab, columns, weights)
			}
		}
		if s := Score(c[0], c[1], c[2]); s < 0 || s >= 1 || s != Score(c[0], c[1], c[2]) {
			t.Errorf("%v: score %v", c, s)
		}
		if s := Label(c[0], c[2], c[1]); s < 0 || s >= 1 || s != Label(c[0], c[2], c[1]) ||
			s == Label(c[0], c[2]+"x", c[1]) || s == Label(c[0], c[2], c[1]+"x") ||
			s == Label(c[0]+"x", c[2], c[1]) {
			t.Errorf("%v: label %v", c, s)
		}
		if p := Class(c[0], c[2], ""); len(p) != len(Labels) ||
			slices.Equal(p, Class(c[0], "", c[2])) && c[2] != "" {
			t.Errorf("%v: classes %v", c, p)
		}
	}
	if n := len(Multi("m", Document, "a", 3, 5)); n != 15 {
		t.Errorf("%d numbers", n)
	}
	for text, want := range map[string]int{"": 2, "a": 3, "abcd": 3, "abcde": 4} {
		if got := Tokens(text); got != want {
			t.Errorf("%q has %d tokens", text, got)
		}
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]Fault{
		"": {}, "text": {}, "!": {}, "!sleep": {}, "!sleep=x": {}, "!sleep=-1s": {}, "!big=": {},
		"!big=1GiB": {},
		" !crash":   {}, "!crashed": {}, "!big=-1": {}, "!big=99999999999999999999": {},
		"!sleep=50ms":        {Kind: Sleep, Sleep: 50 * time.Millisecond},
		"!sleep=1s and more": {Kind: Sleep, Sleep: time.Second},
		"!sleep=100h":        {Kind: Sleep, Sleep: MaxSleep},
		"!crash":             {Kind: Crash},
		"!crash number 7":    {Kind: Crash},
		"!oom":               {Kind: OOM},
		"!hang":              {Kind: Hang},
		"!big=40MiB":         {Kind: Big, Bytes: 40 << 20},
		"!big=3KiB x":        {Kind: Big, Bytes: 3 << 10},
		"!big=12":            {Kind: Big, Bytes: 12},
		"!big=2147483647MiB": {Kind: Big, Bytes: MaxBig},
	} {
		if got := ParseFault(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
