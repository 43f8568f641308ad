package task_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// Each token has the piece of text that it stands for and that piece's place in bytes. A special
// token has its own text and no place. Texts are split whole, whatever the model's limit.
func TestTokenize(t *testing.T) {
	r := start(t, nil, []string{mean}, entry(t, "bytes", golden.Open(t, "pipeline-tags").Dir,
		"token_classification", "tasks: {extract: {}}"))
	type place [2]int
	none := place{-1, -1}
	for _, c := range []struct {
		model, text string
		special     bool
		pieces      string // joined by |
		places      []place
	}{
		{mean, "a b", true, "[CLS]|a|b|[SEP]", []place{none, {0, 1}, {2, 3}, none}},
		{mean, "a b", false, "a|b", []place{{0, 1}, {2, 3}}},
		{mean, "", false, "", nil},
		{mean, strings.Repeat("a ", 50), false, strings.TrimSuffix(strings.Repeat("a|", 50), "|"), nil},
		{"bytes", "\u00e9 <mask>", true, "<s>|\u00e9|\u00e9||<mask>|</s>",
			[]place{none, {0, 2}, {0, 2}, {3, 3}, {3, 9}, none}},
	} {
		got, err := r.Tokenize(t.Context(), c.model, []string{"x", c.text}, c.special)
		if err != nil {
			t.Fatal(err)
		}
		var pieces []string
		var spans []place
		var ids []int32
		for _, k := range got[1] {
			at := none
			if k.Start != nil && k.Stop != nil {
				at = place{*k.Start, *k.Stop}
			}
			if k.Special != (at == none) {
				t.Errorf("%q: token %+v is special and has a place, or neither", c.text, k)
			}
			pieces, spans, ids = append(pieces, k.Text), append(spans, at), append(ids, int32(k.ID))
		}
		if strings.Join(pieces, "|") != c.pieces || c.places != nil && !slices.Equal(spans, c.places) {
			t.Errorf("%s, %q: %q at %v, want %q at %v", c.model, c.text, pieces, spans, c.pieces, c.places)
		}
		back, err := r.Detokenize(t.Context(), c.model, [][]int32{ids, {}}, true)
		if want := strings.TrimSpace(strings.ReplaceAll(c.text, " <mask>", "")); err != nil ||
			strings.TrimSpace(back[0]) != want || back[1] != "" {
			t.Errorf("%s: %q come back as %q, %v, want %q", c.model, c.text, back, err, want)
		}
		if all, err := r.Detokenize(t.Context(), c.model, [][]int32{ids}, false); err != nil ||
			c.special != (all[0] != back[0]) {
			t.Errorf("%s: %q with special tokens: %q, %v", c.model, c.text, all, err)
		}
	}
	_, err := r.Detokenize(t.Context(), mean, [][]int32{{5}, {5, 101}}, true)
	if e := errs.As(err); e == nil || e.Status != 400 || e.Param != "ids" ||
		!strings.Contains(e.Message, "'ids[1]'") {
		t.Errorf("an id outside the vocabulary: %v", err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := r.Detokenize(ctx, mean, [][]int32{{5}}, true); !errors.Is(err, gone) {
		t.Errorf("a client that left: %v", err)
	}
	if _, err := r.Tokenize(ctx, mean, []string{"a"}, true); !errors.Is(err, gone) {
		t.Errorf("a client that left: %v", err)
	}
}

// Texts are split once the places of all their tokens have room, a chunk at a time, and their
// tokens are made once these have room, too.
func TestTokensAreHeldBeforeTheyAreMade(t *testing.T) {
	r := start(t, nil, []string{mean})
	texts := slices.Repeat([]string{strings.Repeat("a ", 200)}, 200) // two chunks
	var held []int64
	tokens, err := r.With(func(bytes int64, _ int) error { held = append(held, bytes); return nil }).
		Tokenize(t.Context(), mean, texts, false)
	if err != nil {
		t.Fatal(err)
	}
	const places, entries = 16 * 200, 96 * 200
	n, lists := len(tokens[0]), int64(0)
	if n != 200 || len(held) != 1+2+len(texts) {
		t.Fatalf("%d tokens, room was asked for %d times", n, len(held))
	}
	for at, chunk := range map[int]int64{1: 128, 2 + 128: 72} {
		if held[at] < chunk*places {
			t.Errorf("%d bytes for the places of %d texts", held[at], chunk)
		}
	}
	for _, bytes := range held[1:] {
		lists += bytes
	}
	if lists < entries*200 {
		t.Errorf("%d bytes for the tokens of 200 texts", lists)
	}
	refused := errors.New("no room")
	for _, at := range []int{1, 2, 3} {
		n := 0
		_, err := r.With(func(int64, int) error {
			if n++; n == at {
				return refused
			}
			return nil
		}).Tokenize(t.Context(), mean, texts, false)
		if !errors.Is(err, refused) || n != at {
			t.Errorf("call %d refuses: %v after %d", at, err, n)
		}
	}
}
