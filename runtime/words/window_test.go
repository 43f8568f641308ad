package words

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/golden"
)

// thirds is a Tokenize for tests: a subtoken stands for three characters, a tilde has none, and an
// id is the number of characters of its word.
func thirds(words []string, ids []int32, ends []int) ([]int32, []int, error) {
	for _, w := range words {
		n := utf8.RuneCountInString(w)
		if w != "~" {
			for range (n + 2) / 3 {
				ids = append(ids, int32(n))
			}
		}
		ends = append(ends, len(ids))
	}
	return ids, ends, nil
}

func wide(words int) Limits { return DefaultLimits(words) }

// Windows are those of the published server, with long words, hyphens at the edges of pieces and
// every kind of limit.
func TestWindowsOfTexts(t *testing.T) {
	type window struct {
		Start     int    `json:"start"`
		ReadEnd   int    `json:"read_end"`
		Shared    int    `json:"shared"`
		Count     int    `json:"count"`
		Subtokens int    `json:"subtokens"`
		Sum       string `json:"sum"`
		LeftOff   int    `json:"left_off"`
	}
	cases := golden.JSON[[]struct {
		Parts        [][2]any `json:"parts"`
		MaxWords     int      `json:"max_words"`
		MaxSubtokens int      `json:"max_subtokens"`
		Overlap      int      `json:"overlap"`
		MaxWindows   int      `json:"max_windows"`
		Windows      []window `json:"windows"`
	}](t, "words", "windows.json")
	tooMany, several := 0, 0
	for i, c := range cases {
		var b strings.Builder
		for _, part := range c.Parts {
			b.WriteString(strings.Repeat(part[0].(string), int(part[1].(float64))))
		}
		limits := Limits{c.MaxWords, c.MaxSubtokens, MaxWordChars, c.Overlap, c.MaxWindows}
		got, err := Windows(b.String(), limits, thirds)
		if c.Windows == nil {
			tooMany++
			var bound *BoundError
			if !errors.As(err, &bound) || bound.Bound != "max_windows" || bound.Max != c.MaxWindows {
				t.Errorf("case %d: %d windows, error %v; the reference has more than %d",
					i, len(got), err, c.MaxWindows)
			}
			continue
		}
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		want := c.Windows
		total := len(want)
		if left := want[len(want)-1].LeftOff; left > 0 {
			want = want[:len(want)-1]
			total = len(want) + left
		}
		if len(got) != total {
			t.Errorf("case %d: %d windows, want %d", i, len(got), total)
			continue
		}
		if total > 1 {
			several++
		}
		for j, w := range want {
			g := got[j]
			sum := sha256.New()
			for k, word := range g.Words {
				fmt.Fprintf(sum, "%d %d\n", word.Start, word.End)
				if ids := g.Tokens(k); len(ids) > 0 && int(ids[0]) != word.End-word.Start {
					t.Errorf("case %d: window %d: word %d has the tokens of another", i, j, k)
				}
			}
			if s := (window{g.Start, g.ReadEnd, g.Shared, len(g.Words), len(g.IDs),
				hex.EncodeToString(sum.Sum(nil))[:16], 0}); s != w {
				t.Errorf("case %d: window %d is %+v, want %+v", i, j, s, w)
			}
			if g.First != (j == 0) {
				t.Errorf("case %d: window %d: First is %v", i, j, g.First)
			}
		}
	}
	if tooMany < 10 || several < 30 {
		t.Errorf("%d cases have too many windows and %d several: the cases prove little", tooMany, several)
	}
}

func TestBudgets(t *testing.T) {
	for _, c := range golden.JSON[[][4]any](t, "words", "budgets.json") {
		words, kind := int(c[0].(float64)), c[1].(string)
		positions, want := int(c[2].(float64)), int(c[3].(float64))
		if kind != "bert" {
			positions = 0 // the others of these have no absolute ones
		}
		if got := Budget(words, kind == "deberta-v2", positions); got != want {
			t.Errorf("Budget(%d, %q, %d) = %d, want %d", words, kind, positions, got, want)
		}
	}
}

// Each bound holds at its value and not one beyond it.
func TestBoundsOfWindows(t *testing.T) {
	count := func(text string, l Limits) int {
		t.Helper()
		w, err := Windows(text, l, thirds)
		if err != nil {
			t.Fatal(err)
		}
		return len(w)
	}
	l := wide(384)
	if l.MaxSubtokens != 3072 || l.MaxWordChars != 256 || l.Overlap != 64 || l.MaxWindows != 128 {
		t.Errorf("limits %+v", l)
	}
	if n := count(strings.Repeat("a ", 384), l); n != 1 {
		t.Errorf("384 words: %d windows", n)
	}
	if n := count(strings.Repeat("a ", 385), l); n != 2 {
		t.Errorf("385 words: %d windows", n)
	}
	word := func(chars int) int {
		w, _ := Windows(strings.Repeat("a", chars), l, thirds)
		return len(w[0].Words)
	}
	if a, b := word(256), word(257); a != 1 || b != 2 {
		t.Errorf("256 characters are %d words, and 257 are %d", a, b)
	}
	// 3072 subtokens are 8 a word; a word of 24 characters has 8.
	full := strings.TrimSpace(strings.Repeat(strings.Repeat("a", 24)+" ", 384))
	if n := count(full, l); n != 1 {
		t.Errorf("3072 subtokens: %d windows", n)
	}
	if n := count("a"+full, l); n != 2 {
		t.Errorf("3073 subtokens: %d windows", n)
	}
	for _, c := range []struct{ words, windows int }{{128, 128}, {129, 0}} {
		one := l
		one.MaxWords = 1
		w, err := Windows(strings.Repeat("a ", c.words), one, thirds)
		var bound *BoundError
		switch {
		case c.windows > 0 && (err != nil || len(w) != c.windows):
			t.Errorf("%d words: %d windows, %v", c.words, len(w), err)
		case c.windows == 0 && (!errors.As(err, &bound) || bound.Max != 128 || bound.Field != "text" ||
			!strings.Contains(err.Error(), "max_windows")):
			t.Errorf("%d words: %v", c.words, err)
		}
	}
}

// A text beyond every bound is refused without reading it to its end.
func TestLongTextsAreNotReadToTheEnd(t *testing.T) {
	l := wide(8)
	l.MaxWindows = 3
	words := 0
	count := func(w []string, ids []int32, ends []int) ([]int32, []int, error) {
		words += len(w)
		return thirds(w, ids, ends)
	}
	_, err := Windows(strings.Repeat("a ", 1<<20), l, count)
	var bound *BoundError
	if !errors.As(err, &bound) || words > 2*block {
		t.Errorf("%d words were tokenized; error %v", words, err)
	}
}

func TestWindowsReportTokenizerErrors(t *testing.T) {
	stop := errors.New("stop")
	_, err := Windows("a b", wide(4), func(_ []string, ids []int32, ends []int) ([]int32, []int, error) {
		return ids, ends, stop
	})
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestWindowsWithoutWords(t *testing.T) {
	for _, text := range []string{"", " \n\u3000"} {
		w, err := Windows(text, wide(4), thirds)
		if err != nil || len(w) != 1 || len(w[0].Words) != 0 || w[0].ReadEnd != utf8.RuneCountInString(text) {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for name, spoil := range map[string]func(*Limits){
		"max_words":      func(l *Limits) { l.MaxWords = 0 },
		"max_subtokens":  func(l *Limits) { l.MaxSubtokens = 0 },
		"max_word_chars": func(l *Limits) { l.MaxWordChars = 0 },
		"overlap_words":  func(l *Limits) { l.Overlap = -1 },
		"max_windows":    func(l *Limits) { l.MaxWindows = 0 },
	} {
		l := wide(4)
		spoil(&l)
		if _, err := Windows("a", l, thirds); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLabels(t *testing.T) {
	l := DefaultLabelLimits
	markers := []string{"<<ENT>>", "<<SEP>>"}
	many := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprint(i)
		}
		return out
	}
	chars := func(labels, each int) []string {
		out := many(labels)
		for i := range out {
			out[i] += strings.Repeat("é", each-len(out[i]))
		}
		return out
	}
	for _, c := range []struct {
		name   string
		labels []string
		others int
		want   string // in the error; "": none
	}{
		{"1000 labels", many(1000), 0, ""},
		{"1001 labels", many(1001), 0, "1001 labels in all; a request may have at most 1000 (max_labels)"},
		{"1000 labels and one of relations", many(1000), 1, "max_labels"},
		{"128 characters", chars(1, 128), 0, ""},
		{"129 characters", chars(1, 129), 0,
			"entities[0] has 129 characters; a label may have at most 128 (max_label_chars)"},
		{"32768 characters", chars(256, 128), 0, ""},
		{"32896 characters", chars(257, 128), 0, "1024 tokens (max_prompt_tokens)"},
		{"blank", []string{"a", " \u3000"}, 0, "entities[1] is blank"},
		{"empty", []string{""}, 0, "entities[0] is blank"},
		{"twice", []string{"a", "b", "a"}, 0, `entities[2] "a" is entities[0] again`},
		{"a marker", []string{"<<ENT>>"}, 0, `marker "<<ENT>>"`},
		{"a marker inside", []string{"x<<SEP>>y"}, 0, `marker "<<SEP>>"`},
		{"half a marker", []string{"<<ENT"}, 0, ""},
	} {
		err := l.CheckLabels("entities", c.labels, c.others, markers)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if err := l.CheckPrompt("labels", 1024); err != nil {
		t.Error(err)
	}
	var bound *BoundError
	if err := l.CheckPrompt("labels", 1025); !errors.As(err, &bound) || bound.Bound != "max_prompt_tokens" {
		t.Errorf("1025 tokens: %v", err)
	}
}

// Windows together have every word of the text, each with its tokens, and keep every limit.
func FuzzWindows(f *testing.F) {
	f.Add("a b-c d", uint8(2), uint8(3), uint8(2), uint8(1))
	f.Add(strings.Repeat("x", 20)+"-y z", uint8(1), uint8(1), uint8(4), uint8(9))
	f.Add("日本-語 \xff-\xfe", uint8(3), uint8(2), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, text string, words, subtokens, chars, overlap uint8) {
		l := Limits{int(words%8) + 1, int(subtokens%16) + 1, int(chars%8) + 1, int(overlap % 8), 1 << 30}
		windows, err := Windows(text, l, thirds)
		if err != nil {
			t.Fatal(err)
		}
		runes := []rune(text)
		covered := make([]bool, len(runes))
		for i, w := range windows {
			if len(w.Words) > l.MaxWords || len(w.Words) > 1 && len(w.IDs) > l.MaxSubtokens {
				t.Fatalf("window %d has %d words and %d subtokens; limits %+v",
					i, len(w.Words), len(w.IDs), l)
			}
			if i > 0 && (w.Words[0].Start != w.Start ||
				w.Shared > min(l.Overlap, len(windows[i-1].Words)/2)) {
				t.Fatalf("window %d shares %d words", i, w.Shared)
			}
			for k, word := range w.Words {
				if n := word.End - word.Start; n < 1 || n > l.MaxWordChars ||
					utf8.RuneCountInString(word.In(text)) != n {
					t.Fatalf("window %d: word %+v", i, word)
				}
				if k > 0 && word.Start < w.Words[k-1].End {
					t.Fatalf("window %d: words %d and %d overlap", i, k-1, k)
				}
				for c := word.Start; c < word.End; c++ {
					covered[c] = true
				}
			}
		}
		for i, is := range covered {
			if is == IsSpace(runes[i]) {
				t.Fatalf("character %d (%q) is read: %v", i, runes[i], is)
			}
		}
	})
}
