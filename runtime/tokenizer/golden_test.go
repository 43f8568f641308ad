package tokenizer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// runes returns the first n characters of s, as Python slices.
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
				t.Errorf("streaming %v, cuttable %v; want %v, %v", tok.info.streaming, tok.info.cuttable, k.streaming, k.cuttable)
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
			var b, all Batch
			if err := tok.EncodeParallel(context.Background(), &all, texts(), Options{}); err != nil {
				t.Fatal(err)
			}
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
					if over := len(all.Text(i)) > n; b.Truncated[i] != over {
						t.Errorf("text %d, limit %d: Truncated is %v, %d tokens in all", i, n, b.Truncated[i], len(all.Text(i)))
					}
				}
			}
		})
	}
}

func TestLeftTruncationEqualsPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			tok.left = true
			var b Batch
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
	const chars = 150
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, g := load(t, k.name), golden(k.name)
			var b Batch
			for _, p := range g.Pairs {
				first, second := runes(texts()[p.First], chars), runes(texts()[p.Second], chars+p.More)
				// Three times, so that more than one pair of a call is looked at.
				if err := tok.EncodePairs(&b, []string{"x", first, first}, []string{"", second, second}, Options{MaxTokens: p.Max}); err != nil {
					t.Fatal(err)
				}
				from := b.Ends[1]
				if !slices.Equal(b.Text(1), p.IDs) || !slices.Equal(b.Text(2), p.IDs) || !slices.Equal(b.TypeIDs[from:], p.Types) {
					t.Errorf("pair %d, %d, limit %d:\n got %v\n     %v\nwant %v\n     %v", p.First, p.Second, p.Max, b.Text(2), b.TypeIDs[from:], p.IDs, p.Types)
				}
			}
		})
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
