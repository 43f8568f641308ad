package task_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// letters returns one-letter words, each one token of the golden tokenizers, so that the last n
// words of a text are its last n tokens.
func letters(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = string(rune('a' + (i*i+3*i)%26))
	}
	return out
}

// If a request asks for it, texts and token ids that are too long lose their start. Those that fit
// do not change.
func TestLeftTruncationOfVectors(t *testing.T) {
	r := start(t, nil, []string{mean})
	words := letters(100)
	long, tail, short := strings.Join(words, " "), strings.Join(words[100-38:], " "), "the cat sat"
	res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: []string{long, short}, TruncateLeft: true})
	if err != nil {
		t.Fatal(err)
	}
	want := r.Rows(&Request{Model: mean, Texts: []string{tail, short, long}})
	if !bytes.Equal(res.Rows[0], want[0]) || !bytes.Equal(res.Rows[1], want[1]) ||
		bytes.Equal(want[0], want[2]) {
		t.Error("the vector is not that of the text's end")
	}
	ids := make([]int32, 100)
	for i := range ids {
		ids[i] = int32(5 + i%40)
	}
	// By default the start is kept. A limit above the model's has no effect.
	res, err = r.Encode(t.Context(),
		&Request{Model: mean, Tokens: [][]int32{ids}, Options: map[string]any{"max_seq_length": int64(50)}})
	if start, err2 := r.Encode(t.Context(), &Request{Model: mean, Tokens: [][]int32{ids[:40]}}); err != nil ||
		err2 != nil || res.Tokens != 40 || !bytes.Equal(start.Rows[0], res.Rows[0]) {
		t.Errorf("the vector of token ids is not that of their start: %d tokens, %v, %v",
			res.Tokens, err, err2)
	}
	res, err = r.Encode(t.Context(),
		&Request{Model: mean, Tokens: [][]int32{ids, ids[:3]}, TruncateLeft: true})
	if err != nil {
		t.Fatal(err)
	}
	if end, err := r.Encode(t.Context(), &Request{
		Model: mean, Tokens: [][]int32{ids[60:], ids[:3]},
	}); err != nil || !bytes.Equal(end.Rows[0], res.Rows[0]) || !bytes.Equal(end.Rows[1], res.Rows[1]) {
		t.Errorf("the vector of token ids is not that of their end: %v", err)
	}
}

// A pair loses tokens of its longer text first, each text from its start.
func TestLeftTruncationOfPairs(t *testing.T) {
	r := start(t, nil, nil,
		entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification",
			"tasks: {extract: {}}"))
	query, words := letters(10), letters(200)
	// 60 tokens: 3 special, 10, 47
	q, long, tail := strings.Join(query, " "), strings.Join(words, " "), strings.Join(words[200-47:], " ")
	score := func(texts []string, left bool) []float64 {
		res, err := r.Score(t.Context(),
			&ScoreRequest{Model: "ce", Query: q, Texts: texts, TruncateLeft: left})
		if err != nil {
			t.Fatal(err)
		}
		return res.Scores
	}
	if got, want := score([]string{long, "a"}, true),
		score([]string{tail, "a", long}, false); !slices.Equal(got, want[:2]) || got[0] == want[2] {
		t.Errorf("scores %v, of the ends %v", got, want)
	}
	classify := func(c ClassifyRequest) []float64 {
		c.Model = "moods"
		res, err := r.Classify(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		return res.Classes[0]
	}
	both := ClassifyRequest{Pairs: [][2]string{{long, q}}, TruncateLeft: true}
	if got, want := classify(both),
		classify(ClassifyRequest{Pairs: [][2]string{{tail, q}}}); !slices.Equal(got, want) {
		t.Errorf("a pair: %v, of the ends %v", got, want)
	}
	one := ClassifyRequest{Texts: []string{long}, TruncateLeft: true}
	got, want := classify(one), classify(ClassifyRequest{Texts: []string{strings.Join(words[200-58:], " ")}})
	if start := classify(ClassifyRequest{Texts: []string{long}}); !slices.Equal(got, want) ||
		math.Abs(got[0]-start[0]) < 1e-9 {
		t.Errorf("a text: %v, of its end %v, of its start %v", got, want, start)
	}
}
