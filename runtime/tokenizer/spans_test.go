package tokenizer

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"
)

// goldenPlaces holds [id, start, end, is special, …] of texts, in code points, for whole texts and
// for texts cut to 12 tokens.
type goldenPlaces struct{ Full, Cut [][]int }

// placedTexts returns the texts of goldenPlaces.
func placedTexts(t *testing.T, n int) []string {
	all := texts()
	if n != 41+150 || len(all) < n {
		t.Fatalf("golden places of %d texts, of %d", n, len(all))
	}
	return slices.Concat(all[:41], all[len(all)-150:])
}

func TestSpansEqualPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok := load(t, k.name)
			var want goldenPlaces
			mustJSON(filepath.Join(goldenDir, k.name, "places.json"), &want)
			all := placedTexts(t, len(want.Full))
			for limit, want := range map[int][][]int{0: want.Full, 12: want.Cut} {
				placed, err := tok.EncodeSpans(context.Background(), all, Options{MaxTokens: limit})
				if err != nil {
					t.Fatal(err)
				}
				var b Batch
				if err := tok.Encode(&b, all, Options{MaxTokens: limit}); err != nil {
					t.Fatal(err)
				}
				for i, text := range all {
					if got := inCodePoints(text, placed[i].Tokens); !slices.Equal(got, want[i]) {
						t.Errorf("text %d %.60q, limit %d:\n got %v\nwant %v", i, text, limit, got, want[i])
					}
					if !slices.Equal(placed[i].IDs(), b.Text(i)) || placed[i].Truncated != b.Truncated[i] {
						t.Errorf("text %d, limit %d: ids or their end differ from Encode's", i, limit)
					}
				}
			}
		})
	}
}

// inCodePoints converts places to the form of goldenPlaces. A token of some bytes of a character
// has the place of the whole character.
func inCodePoints(text string, tokens []TokenSpan) []int {
	points := func(at uint32) int { return utf8.RuneCountInString(text[:at]) }
	var out []int
	for _, p := range tokens {
		end := p.End
		for int(end) < len(text) && !utf8.RuneStart(text[end]) {
			end++
		}
		special := 0
		if p.Special() {
			special = 1
		}
		start := p.Start
		for start > 0 && int(start) < len(text) && !utf8.RuneStart(text[start]) {
			start--
		}
		out = append(out, int(p.ID), points(start), points(end), special)
	}
	return out
}

func TestSpanFailures(t *testing.T) {
	tok := load(t, "minilm")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tok.EncodeSpans(done, []string{"a", "b"}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var e *TextError
	if _, err := tok.EncodeSpans(context.Background(), []string{"a"}, Options{MaxTokens: 1}); !errors.As(err,
		&e) || e.Index != 0 || !errors.Is(err, ErrNoRoom) {
		t.Errorf("no room: %v", err)
	}
	if out, err := tok.EncodeSpans(context.Background(), nil, Options{}); err != nil || len(out) != 0 {
		t.Errorf("no texts: %v, %v", out, err)
	}
	if err := tok.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tok.EncodeSpans(context.Background(), []string{"a"}, Options{}); !errors.Is(err,
		ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
