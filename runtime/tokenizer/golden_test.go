package tokenizer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// runes returns the first n characters of s, like a slice in Python.
func runes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func TestIDsEqualPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			if tok.info.streaming != k.streaming || tok.info.cuttable != k.cuttable {
				t.Errorf("streaming %v, cuttable %v; want %v, %v",
					tok.info.streaming, tok.info.cuttable, k.streaming, k.cuttable)
			}
			var b Batch
			if err := tok.EncodeParallel(context.Background(), &b, texts(), Options{}); err != nil {
				t.Fatal(err)
			}
			for i := range g.Full {
				g.Full[i].check(t, fmt.Sprintf("text %d", i), b.Text(i))
				if b.Truncated[i] {
					t.Errorf("text %d is reported as cut without a limit", i)
				}
			}
			if err := tok.Encode(&b, texts()[:len(g.Plain)], Options{NoSpecial: true}); err != nil {
				t.Fatal(err)
			}
			for i := range g.Plain {
				g.Plain[i].check(t, fmt.Sprintf("text %d, no special tokens", i), b.Text(i))
			}
		})
	}
}

func TestTruncatedIDsEqualPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			var b Batch
			for limit, want := range g.Cut {
				n, err := strconv.Atoi(limit)
				must(err)
				if err := tok.Encode(&b, texts(), Options{MaxTokens: n}); err != nil {
					t.Fatal(err)
				}
				for i, w := range want {
					if w != nil {
						w.check(t, fmt.Sprintf("text %d, limit %d", i, n), b.Text(i))
					}
					all := max(g.Full[i].Count, len(g.Full[i].IDs))
					if b.Truncated[i] != (all > n) {
						t.Errorf("text %d, limit %d: Truncated is %v, %d tokens in all",
							i, n, b.Truncated[i], all)
					}
				}
			}
		})
	}
}

// goldenLeft holds the ids of texts and pairs that lose their start, by limit. Texts are cut to
// their first 2,000 code points.
type goldenLeft struct {
	Cut   map[string][]goldenIDs
	Pairs []goldenPair
}

func TestLeftTruncationEqualsPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			var want goldenLeft
			mustJSON(filepath.Join(goldenDir, k.name, "left.json"), &want)
			if len(want.Cut) != 2 || len(want.Pairs) != 120 {
				t.Fatalf("golden data of %d limits and %d pairs", len(want.Cut), len(want.Pairs))
			}
			var b Batch
			for limit, lists := range want.Cut {
				n, err := strconv.Atoi(limit)
				must(err)
				some := make([]string, len(lists))
				for i := range some {
					some[i] = runes(texts()[i], 2000)
				}
				if err := tok.Encode(&b, some, Options{MaxTokens: n, Left: true}); err != nil {
					t.Fatal(err)
				}
				for i := range lists {
					lists[i].check(t, fmt.Sprintf("text %d, limit %d", i, n), b.Text(i))
				}
			}
			checkPairs(t, tok, want.Pairs, true)
			// A tokenizer whose own truncation side is left needs no option.
			tok.left = true
			if err := tok.Encode(&b, texts()[:len(g.Left)], Options{MaxTokens: 16}); err != nil {
				t.Fatal(err)
			}
			for i := range g.Left {
				g.Left[i].check(t, fmt.Sprintf("text %d", i), b.Text(i))
			}
		})
	}
}

func TestPairsEqualPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			checkPairs(t, load(t, k.name), golden(k.name).Pairs, false)
		})
	}
}

func checkPairs(t *testing.T, tok *Tokenizer, pairs []goldenPair, left bool) {
	const chars = 150
	var b Batch
	for _, p := range pairs {
		first, second := runes(texts()[p.First], chars), runes(texts()[p.Second], chars+p.More)
		// Three times, so that calls have more than one pair.
		if err := tok.EncodePairs(&b, []string{"x", first, first}, []string{"", second, second},
			Options{MaxTokens: p.Max, Left: left}); err != nil {
			t.Fatal(err)
		}
		from := b.Ends[1]
		if !slices.Equal(b.Text(1), p.IDs) || !slices.Equal(b.Text(2), p.IDs) ||
			!slices.Equal(b.TypeIDs[from:], p.Types) {
			t.Errorf("pair %d, %d, limit %d:\n got %v\n     %v\nwant %v\n     %v",
				p.First, p.Second, p.Max, b.Text(2), b.TypeIDs[from:], p.IDs, p.Types)
		}
	}
}

func TestDecodeEqualsPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			for i, d := range g.Decoded {
				if got, err := tok.Decode(d.IDs); err != nil || got != d.Text {
					t.Errorf("text %d: got %q, %v; want %q", i, got, err, d.Text)
				}
				if got, err := tok.DecodeAll(d.IDs); err != nil || got != d.All {
					t.Errorf("text %d with special tokens: got %q, %v; want %q", i, got, err, d.All)
				}
			}
		})
	}
}
