package task

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// Lower case is Unicode's, character by character: that of İ has two, and σ stays the same at the
// end of a word.
func TestLowerCase(t *testing.T) {
	const want = "i\u0307stanbul ss \u00df \u03bf\u03b4\u03bf\u03c3 \U0001042b"
	if got := lowerCase("\u0130STANBUL Ss \u00df \u039f\u0394\u039f\u03a3 \U00010403"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := lower([]string{"\u0130"}); got[0] != "i\u0307" {
		t.Errorf("%q", got)
	}
}

// threshold keeps the scores that reach it, top_k the best. Equal scores keep the order of labels.
func TestRanked(t *testing.T) {
	labels, scores := []string{"a", "b", "c", "d"}, []float64{0.25, 0.5, 0.25, 0.125}
	for _, c := range []struct {
		options map[string]any
		want    string
	}{
		{nil, "b a c d"}, {map[string]any{"threshold": 0.25}, "b a c"},
		{map[string]any{"threshold": 0}, "b a c d"}, {map[string]any{"threshold": int64(1)}, ""},
		{map[string]any{"threshold": 1}, ""}, {map[string]any{"top_k": 1}, "b"},
		{map[string]any{"top_k": int64(2)}, "b a"}, {map[string]any{"top_k": 9.0}, "b a c d"},
		{map[string]any{"top_k": 0}, "b a c d"}, {map[string]any{"top_k": 3, "threshold": 0.5}, "b"},
	} {
		var got []string
		for _, x := range ranked(labels, scores, c.options) {
			got = append(got, x.Label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v, want %s", c.options, got, c.want)
		}
	}
	if p := softmax([]float64{1000, 1000, -1000}); p[0] != 0.5 || p[1] != 0.5 || p[2] != 0 {
		t.Errorf("softmax of large logits: %v", p)
	}
}

func TestBestTagsAndJoin(t *testing.T) {
	spans := make([]tokenizer.TokenSpan, 3)
	for i := range spans {
		spans[i] = tokenizer.TokenSpan{Start: uint32(2 * i), End: uint32(2*i + 1)}
	}
	tags := bestTags([]float64{1, 1, 0, 0, 3, 3, 0, 0, 0}, []string{"O", "B-X", "I-X"}, spans)
	for i, want := range []string{"O", "B-X", "O"} { // of equal logits the first label wins
		if tags[i].label != want {
			t.Errorf("token %d: %s, want %s", i, tags[i].label, want)
		}
	}
	found := join([]tagged{
		{"I-X", 0.5, 0, 1}, {"I-X", 0.25, 2, 3}, {"B-X", 1, 4, 5}, {"O", 1, 6, 7}, {"X", 1, 8, 9},
		{"I-Y", 1, 10, 11},
	}, "a b c d e f")
	want := []api.Entity{
		{Text: "a b", Label: "X", Score: 0.375, Start: 0, End: 3},
		{Text: "c", Label: "X", Score: 1, Start: 4, End: 5},
		{Text: "e", Label: "X", Score: 1, Start: 8, End: 9},
		{Text: "f", Label: "Y", Score: 1, Start: 10, End: 11},
	}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", found, want)
	}
}

// Of schemes that mark ends and single tokens, too, entities are those of transformers'
// group_entities: a token with another prefix than B- and I- begins an entity, whose name has no
// prefix. A hyphen elsewhere stays, which transformers takes for the end of a prefix.
func TestJoinOtherSchemes(t *testing.T) {
	var got []string
	for _, e := range join([]tagged{
		{"B-LOC", 1, 0, 1}, {"I-LOC", 1, 2, 3}, {"E-LOC", 1, 4, 5}, {"S-PER", 1, 6, 7}, {"S-PER", 1, 8, 9},
		{"O", 1, 10, 11}, {"U-ORG", 1, 12, 13}, {"L-ORG", 1, 14, 15}, {"birth-date", 1, 16, 17},
	}, "a b c d e f g h i") {
		got = append(got, e.Text+" "+e.Label)
	}
	want := []string{"a b LOC", "c LOC", "d e PER", "g ORG", "h ORG", "i birth-date"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHypothesis(t *testing.T) {
	for template, want := range map[string]string{
		"":               "This text is about x{}.",
		"{}":             "x{}",
		"{{a}} {} }}b{{": "{a} x{} }b{",
		"no":             "",
		"{} {}":          "",
		"{0}":            "",
	} {
		p := &Prepared{plan: plan{
			options: &catalog.RuntimeOptions{Raw: map[string]any{"hypothesis_template": template}},
		}, model: &catalog.Resolved{Loadtime: &catalog.LoadtimeOptions{}}}
		h, err := hypothesis(p)
		if (err == nil) != (want != "") || err == nil && h.Format("x{}") != want {
			t.Errorf("%q: %q, %v, want %q", template, h.Format("x{}"), err, want)
		}
		if e := errs.As(err); err != nil && e.Param != "options.hypothesis_template" {
			t.Errorf("%q: %v", template, err)
		}
	}
	// A load-time option applies if neither request nor profile sets it.
	p := &Prepared{plan: plan{options: &catalog.RuntimeOptions{}}, model: &catalog.Resolved{
		Loadtime: &catalog.LoadtimeOptions{Raw: map[string]any{"hypothesis_template": "I see {}"}},
	}}
	if h, err := hypothesis(p); err != nil || h.Format("x") != "I see x" {
		t.Errorf("%q, %v", h.Format("x"), err)
	}
}

// The queue may see a deadline pass a moment before the context does.
func TestDeadlineSeenByTheQueueFirst(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, errs.Late(time.Second))
	defer cancel()
	err := translate(ctx, nil, batch.ErrExpired, nil, nil, 1, "encoding")
	if e := errs.As(err); e.Status != 504 {
		t.Errorf("got %v", err)
	}
}

// A list without ids, even a nil one, is a token list and not an empty text.
func TestListsWithoutIDs(t *testing.T) {
	for i, in := range TokenLists([][]int32{nil, {}, {1}}) {
		if ids := in.Tokens(); ids == nil || len(ids) != i/2 || in.HasText {
			t.Errorf("list %d: %v, text %v", i, ids, in.HasText)
		}
	}
}

// The text of a long list of token ids is never made before it has room: a token may stand for many
// times the bytes that its id takes in a request.
func TestLongListsAreHeldBeforeTheyAreDecoded(t *testing.T) {
	const token = 128 // bytes
	for _, n := range []int{0, 1, decodePiece, decodePiece + 1, 5*decodePiece + 7} {
		var held, made int64
		decode := func(ids []int32) (string, error) {
			made = max(made, int64(len(ids))*token)
			if len(ids) > decodePiece && held < int64(len(ids))*token {
				t.Errorf("%d ids: %d bytes are made and %d have room", n, len(ids)*token, held)
			}
			return strings.Repeat("x", len(ids)*token), nil
		}
		room := int64(math.MaxInt64)
		hold := func(bytes int64, items int) error {
			if held+bytes > room {
				return errs.FullQueue(1, 1, 1)
			}
			held += bytes
			return nil
		}
		text, err := decodeHeld(t.Context(), make([]int32, n), 1, decode, hold)
		if err != nil || len(text) != n*token || held != int64(n*token) {
			t.Errorf("%d ids: %d bytes, %d held, %v", n, len(text), held, err)
		}
		held, made, room = 0, 0, 1<<20
		full := n*token > 1<<20
		if _, err = decodeHeld(t.Context(), make([]int32, n), 1, decode, hold); (err != nil) != full ||
			full && made > decodePiece*token {
			t.Errorf("%d ids with too little room: %v, %d bytes were made", n, err, made)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	_, err := decodeHeld(ctx, make([]int32, decodePiece+1), 1,
		func([]int32) (string, error) { return "", nil }, func(int64, int) error { return nil })
	if !errors.Is(err, cause) {
		t.Errorf("a client that left: %v", err)
	}
}
