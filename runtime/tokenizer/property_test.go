package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// randomText draws from few pieces, so that words, marks, spaces and added tokens often meet.
func randomText(r *rand.Rand) string {
	pieces := []string{
		" ", " ", "  ", "\n", "\t", "a", "e", "the", "word", "ing", "Z", "7", "123", "'s", ".", "!?", "#",
		"-", "_", "é", "e\u0301", "\u0301", "\u0316", "\u302e", "ß", "İ", "Σ", "й", "ŀ", "\u00a0", "\u3000",
		"\u2028", "\u0085", "中", "北京", "。", "\uf900", "か\u3099", "が", "한", "\u1112\u1161", "👍🏽", "👨\u200d👩",
		"\u0600", "\u0d4e", "ﷺ", "①", "▁", "[CLS]", "[SEP]", "[MASK]", "<s>", "<mask>", "<|endoftext|>", "[",
		"]", "<", "Café", "Über", "über", "\x00", "\x01", "\x7f", "\u200b", "\ufffd", "\ue000", "\xff",
		"\xe4\xb8", "\xf0\x9f", "\r\n",
	}
	var b strings.Builder
	for n := r.IntN(40); n > 0; n-- {
		p := pieces[r.IntN(len(pieces))]
		b.WriteString(strings.Repeat(p, 1+r.IntN(30)/29*r.IntN(120)))
	}
	return b.String()
}

// compare checks one text and limit. Every path must give the ids that the library's own pipeline
// gives for the whole text, cut afterwards.
func compare(t *testing.T, tok *Tokenizer, text string, limit int) {
	t.Helper()
	var all, want, got Batch
	if err := tok.Encode(&all, []string{text}, Options{general: true, whole: true}); err != nil {
		t.Fatal(err)
	}
	limit = tok.CountSpecial(false) + limit
	for _, c := range []struct {
		name      string
		want, opt Options
	}{
		{"whole text", Options{general: true, whole: true}, Options{}},
		{"no special tokens", Options{general: true, whole: true, NoSpecial: true}, Options{NoSpecial: true}},
		{"limit", Options{general: true, whole: true, MaxTokens: limit}, Options{MaxTokens: limit}},
		{"limit, general pipeline", Options{general: true, whole: true, MaxTokens: limit},
			Options{general: true, MaxTokens: limit}},
	} {
		if limit == 0 && c.opt.MaxTokens == 0 && strings.HasPrefix(c.name, "limit") {
			continue // 0 means no limit
		}
		if err := tok.Encode(&want, []string{text}, c.want); err != nil {
			t.Fatal(err)
		}
		if err := tok.Encode(&got, []string{text}, c.opt); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, want.IDs) {
			t.Fatalf("%s: %q, limit %d:\n got %v\nwant %v", c.name, text, limit, got.IDs, want.IDs)
		}
		if cut := c.opt.MaxTokens > 0 && len(all.IDs) > limit; got.Truncated[0] != cut {
			t.Fatalf("%s: %q, limit %d: Truncated is %v, %d tokens in all",
				c.name, text, limit, got.Truncated[0], len(all.IDs))
		}
	}
}

func TestEveryPathGivesTheSameIDs(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok := load(t, k.name)
			r := rand.New(rand.NewPCG(3, uint64(len(k.name))))
			for range 250 {
				compare(t, tok, randomText(r), r.IntN(40))
			}
			// The text is long enough that the general pipeline cuts it, more than once where
			// tokens are long.
			for range 12 {
				var b strings.Builder
				for b.Len() < 3000 {
					b.WriteString(randomText(r))
					b.WriteString([]string{" ", "", "\n", " the ", strings.Repeat(" ", 200)}[r.IntN(5)])
				}
				compare(t, tok, b.String(), 1+r.IntN(200))
			}
		})
	}
}

// Every character, alone and beside letters and marks, because the streaming pass has its own
// tables.
func TestEveryCharacterGivesTheSameIDs(t *testing.T) {
	const last = 0x3400 // above the end of the tables
	for _, kind := range []string{"minilm", "cased", "accents"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tok := load(t, kind)
			var list []string
			for c := rune(1); c < last; c++ {
				if c%32 == 1 {
					list = append(list, "")
				}
				list[len(list)-1] += fmt.Sprintf("a%cb %c%c\u0316\u0301\u302e%c\u0301 ", c, c, c, c)
			}
			var got, want Batch
			must(tok.Encode(&got, list, Options{}))
			must(tok.EncodeParallel(t.Context(), &want, list, Options{general: true}))
			for i := range list {
				if !slices.Equal(got.Text(i), want.Text(i)) {
					t.Errorf("characters from %U:\n got %v\nwant %v", 1+32*i, got.Text(i), want.Text(i))
				}
			}
		})
	}
}

// checkStops compares the time that the streaming pass takes for a text with that for its first
// 20,000 bytes, in turns, the shortest of each. Work on the whole text takes 25 times as long.
func checkStops(t *testing.T, tok *Tokenizer, long string, want []int32) {
	var b Batch
	shortest := map[int]time.Duration{}
	for range 20 {
		for _, n := range []int{20000, len(long)} {
			start := time.Now()
			must(tok.Encode(&b, []string{long[:n]}, Options{MaxTokens: 512}))
			d := time.Since(start)
			if before, ok := shortest[n]; !ok || d < before {
				shortest[n] = d
			}
			if !slices.Equal(b.IDs, want) {
				t.Fatal("another result from the streaming pass")
			}
		}
	}
	if shortest[len(long)] > 5*shortest[20000] {
		t.Errorf("a text of %d bytes takes %v, its first 20,000 bytes %v: the work did not stop at the limit",
			len(long), shortest[len(long)], shortest[20000])
	}
}

// A text of twice MaxWholeBytes gives the ids of its start, and soon.
func TestWorkStopsAtTheLimit(t *testing.T) {
	long := strings.Repeat(texts()[4], (2*MaxWholeBytes)/len(texts()[4]))
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			tok := load(t, k.name)
			var short, b Batch
			opt := Options{MaxTokens: 512, general: true}
			if err := tok.Encode(&short, []string{long[:20000]}, opt); err != nil {
				t.Fatal(err)
			}
			err := tok.Encode(&b, []string{"x", long, "y"}, opt)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(b.Text(1), short.IDs) || !b.Truncated[1] {
				t.Errorf("another result than for the start of the text")
			}
			if k.streaming {
				checkStops(t, tok, long, short.IDs)
			}
			var te *TextError
			err = tok.Encode(&b, []string{"x", strings.Repeat("。", MaxWholeBytes)}, opt)
			if !errors.Is(err, ErrTooLong) || !errors.As(err, &te) || te.Index != 1 ||
				!strings.Contains(err.Error(), "bytes") {
				t.Errorf("no place to cut: got %v, want ErrTooLong", err)
			}
		})
	}
}

func FuzzLimitEqualsFullThenCut(f *testing.F) {
	for i, s := range texts()[:41] {
		f.Add(s, uint8(i), uint8(i%len(kinds)))
	}
	f.Fuzz(func(t *testing.T, text string, limit, kind uint8) {
		k := kinds[int(kind)%len(kinds)]
		compare(t, fuzzed(t, k.name), text, int(limit))
	})
}

func FuzzPairLimitEqualsFullThenCut(f *testing.F) {
	for i, s := range texts()[:40] {
		f.Add(s, texts()[i+1], uint8(i), uint8(i%len(kinds)))
	}
	f.Fuzz(func(t *testing.T, first, second string, limit, kind uint8) {
		tok := fuzzed(t, kinds[int(kind)%len(kinds)].name)
		n := tok.CountSpecial(true) + int(limit)
		var want, got Batch
		if err := tok.EncodePairs(&want, []string{first}, []string{second},
			Options{MaxTokens: n, general: true, whole: true}); err != nil {
			t.Fatal(err)
		}
		if err := tok.EncodePairs(&got, []string{first}, []string{second},
			Options{MaxTokens: n}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.TypeIDs, want.TypeIDs) ||
			got.Truncated[0] != want.Truncated[0] {
			t.Fatalf("%q, %q, limit %d:\n got %v\nwant %v", first, second, n, got.IDs, want.IDs)
		}
	})
}

var fuzzTokenizers = map[string]*Tokenizer{}

// fuzzed keeps a tokenizer open for the whole fuzzing process (inputs run one at a time in it).
func fuzzed(t *testing.T, kind string) *Tokenizer {
	if fuzzTokenizers[kind] == nil {
		tok, err := Load(goldenDir + "/" + kind)
		if errors.Is(err, ErrNotBuilt) {
			t.Skip("the tokenizer library is not linked: run `make test`")
		}
		must(err)
		fuzzTokenizers[kind] = tok
	}
	return fuzzTokenizers[kind]
}
