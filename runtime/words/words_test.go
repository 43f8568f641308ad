package words

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
)

// split returns the offsets of the words of a text and checks that both kinds agree.
func split(t testing.TB, text string) [][2]int {
	t.Helper()
	out := [][2]int{}
	for w := range Split(text) {
		if got := utf8.RuneCountInString(text[:w.From]); got != w.Start {
			t.Fatalf("%.40q: a word at byte %d begins at code point %d, want %d", text, w.From, w.Start, got)
		}
		if got := utf8.RuneCountInString(w.In(text)); got != w.End-w.Start {
			t.Fatalf("%.40q: %.40q has %d code points, want %d", text, w.In(text), got, w.End-w.Start)
		}
		out = append(out, [2]int{w.Start, w.End})
	}
	return out
}

// Words are Python's for every character of Unicode: alone, between letters, beside hyphens, twice.
// With a number in SIE_TEST_TURN every second block of 4,096 characters.
func TestWordsOfAllUnicode(t *testing.T) {
	const step = 0x1000
	want := golden.JSON[[]string](t, "words", "unicode.json")
	if len(want) != 0x110000/step {
		t.Fatalf("%d sums, want one for each %d characters of Unicode", len(want), step)
	}
	mine := testrig.Part(t, 2)
	for i := range want {
		if !mine(i) {
			continue
		}
		var parts []string
		for c := rune(i * step); c < rune((i+1)*step); c++ {
			if 0xd800 <= c && c < 0xe000 {
				continue
			}
			x := string(c)
			parts = append(parts, x+"\na"+x+"b-"+x+"c"+x+"-d\n"+x+x)
		}
		text := strings.Join(parts, "\n")
		sum := sha256.New()
		points := 0 // code points before byte `at`
		at := 0
		for w := range Split(text) {
			points += utf8.RuneCountInString(text[at:w.From])
			at = w.From
			if points != w.Start {
				t.Fatalf("U+%04X...: a word at byte %d begins at code point %d, want %d",
					i*step, at, w.Start, points)
			}
			fmt.Fprintf(sum, "%d %d\n", w.Start, w.End)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want[i] {
			t.Errorf("U+%04X to U+%04X: the words are not Python's", i*step, (i+1)*step-1)
		}
	}
}

func TestWordsOfTexts(t *testing.T) {
	type oneCase struct {
		Text  string   `json:"text"`
		Words [][2]int `json:"words"`
	}
	cases := golden.JSON[[]oneCase](t, "words", "splits.json")
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		if got := split(t, c.Text); !slices.Equal(got, c.Words) {
			t.Errorf("%q: words %v, Python's are %v", c.Text, got, c.Words)
		}
	}
}

func TestWordsOfBrokenText(t *testing.T) {
	want := [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 4}}
	if got := split(t, "a\xff\xfeb"); !slices.Equal(got, want) {
		t.Errorf("words %v, want %v", got, want)
	}
}

func TestLetterRuns(t *testing.T) {
	var got []string
	text := "Zoë_Müller2Ⅷ-x½ 12 \u0661b"
	for w := range LetterRuns(text) {
		got = append(got, w.In(text))
	}
	if want := []string{"Zoë", "Müller", "Ⅷ", "x½", "b"}; !slices.Equal(got, want) {
		t.Errorf("letters %q, want %q", got, want)
	}
}

// Words cover every character that is no space, in order, and their offsets agree.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"", "a-b", "a--b_c", "日本 e\u0301 👍🏽", "\xff-a", "a-\xffb"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at := 0
		for w := range Split(text) {
			if gap := text[at:w.From]; !IsBlank(gap) {
				t.Fatalf("%q has no word", gap)
			}
			if w.To <= w.From || w.End <= w.Start || utf8.RuneCountInString(text[:w.To]) != w.End {
				t.Fatalf("word %+v", w)
			}
			at = w.To
		}
		if !IsBlank(text[at:]) {
			t.Fatalf("%q has no word", text[at:])
		}
	})
}
