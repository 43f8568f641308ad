package task_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// An instruction goes before the query; the request's own replaces the profile's. A length limit
// applies to pairs as to texts.
func TestScoreInstruction(t *testing.T) {
	m := entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}")
	r := start(t, nil, nil, m)
	texts := []string{"the cat sat", "zebra"}
	score := func(q *ScoreRequest) []float64 {
		q.Model, q.Texts = "ce", texts
		res, err := r.Score(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return res.Scores
	}
	ins := "find it"
	want := score(&ScoreRequest{Query: "find it a cat"})
	if got := score(&ScoreRequest{Query: "a cat", Instruction: &ins}); !slices.Equal(got, want) {
		t.Errorf("with an instruction %v, want %v", got, want)
	}
	if got := score(&ScoreRequest{
		Query: "a cat", Options: map[string]any{"instruction": ins},
	}); !slices.Equal(got, want) {
		t.Errorf("with an instruction by option %v, want %v", got, want)
	}
	if got := score(&ScoreRequest{Query: "a cat"}); slices.Equal(got, want) {
		t.Errorf("without: %v", got)
	}
	long := strings.Repeat("cat ", 30)
	e := func(q *ScoreRequest) *errs.Error {
		q.Model = "ce"
		_, err := r.Score(t.Context(), q)
		return errs.As(err)
	}(&ScoreRequest{
		Query:   "a",
		Texts:   []string{"b", long},
		Options: map[string]any{"overflow_policy": "error", "max_seq_length": int64(20)},
	})
	if e == nil || e.Code != errs.InputTooLong || e.Status != 400 || e.Param != "items[1]" ||
		!strings.Contains(e.Message, "more than 20 tokens") {
		t.Errorf("a pair that is too long: %v", e)
	}
	for _, n := range []int64{1, 2, 3} { // a limit below a pair's special tokens counts as their number
		res, err := r.Score(t.Context(), &ScoreRequest{
			Model: "ce", Query: "a", Texts: []string{"b"}, Options: map[string]any{"max_seq_length": n},
		})
		if err != nil || res.Tokens != 3 {
			t.Errorf("a limit of %d tokens: %v, %v", n, res, err)
		}
	}
}

// A head of several labels classifies and does not score. Non-finite scores are the server's error,
// not an answer.
func TestNonFiniteScores(t *testing.T) {
	z := testmodels.TokenID(t, golden.Open(t, "rerank-sigmoid").Dir, "z")
	const tasks = "tasks: {score: {}}"
	r := start(t, nil, nil,
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "cross_encoder", tasks),
		entry(t, "broken", poisoned(t, "rerank-sigmoid", z), "cross_encoder", tasks))
	for _, c := range []struct {
		model, text string
		code        errs.Code
		status      int
		want        string
	}{
		{"moods", "a", errs.InvalidInput, 400, "Model 'moods' has 3 labels and classifies"},
		{"broken", "z", errs.InferenceError, 500,
			"Model 'broken' produced non-finite values (NaN or infinity) for 'items[1]'"},
	} {
		_, err := r.Score(t.Context(),
			&ScoreRequest{Model: c.model, Query: "a", Texts: []string{"b", c.text}})
		if e := errs.As(err); e == nil || e.Code != c.code || e.Status != c.status ||
			!strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v", c.model, err)
		}
	}
	if _, err := r.Score(t.Context(),
		&ScoreRequest{Model: "broken", Query: "a", Texts: []string{"b"}}); err != nil {
		t.Errorf("without the broken token: %v", err)
	}
}

// Late interaction and BGE-M3 read the query once, then every text. Token counts and the errors for
// texts that are too long follow from that.
func TestTokensOfScores(t *testing.T) {
	m3 := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, m3, 111)
	r := start(t, nil, nil, lateModel(t, "late",
		`{query_prefix: "a", doc_prefix: "b", query_expansion: false, query_max_length: 12, doc_max_length: 30}`),
		entry(t, "m3", m3, "bge_m3_flash",
			"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}, score: {}}"))
	yes, texts, long := true, []string{"the cat", "a", "on the mat"}, strings.Repeat("cat ", 60)
	for _, model := range []string{"late", "m3"} {
		strict := map[string]any{"overflow_policy": "error"}
		res, err := r.Score(t.Context(),
			&ScoreRequest{Model: model, Query: "cat sat", Texts: texts, Options: strict})
		if err != nil {
			t.Fatal(err)
		}
		docs, err := r.Encode(t.Context(),
			&Request{Model: model, Texts: texts, OutputTypes: []string{"multivector"}})
		if err != nil {
			t.Fatal(err)
		}
		query, err := r.Encode(t.Context(), &Request{
			Model: model, Texts: []string{"cat sat"}, OutputTypes: []string{"multivector"}, IsQuery: &yes,
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := docs.Tokens + query.Tokens; res.Tokens != want || res.ContentTokens != want-2*4 ||
			res.QueryTokens != query.Tokens || res.QueryContent != query.Tokens-2 {
			t.Errorf("%s: %d tokens, %d of content; the query has %d, the texts %d",
				model, res.Tokens, res.ContentTokens, query.Tokens, docs.Tokens)
		}
		cut, err := r.Score(t.Context(), &ScoreRequest{Model: model, Query: "cat sat", Texts: []string{long}})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := r.Encode(t.Context(),
			&Request{Model: model, Texts: []string{long}, OutputTypes: []string{"multivector"}})
		if err != nil || cut.Tokens != doc.Tokens+query.Tokens {
			t.Errorf("%s: %d tokens of a text that is cut, encoded it has %d, the query %d, %v",
				model, cut.Tokens, doc.Tokens, query.Tokens, err)
		}
		for param, q := range map[string]*ScoreRequest{
			"query": {Query: long, Texts: texts}, "items[1]": {Query: "a", Texts: []string{"b", long}},
		} {
			q.Model, q.Options = model, strict
			_, err := r.Score(t.Context(), q)
			if e := errs.As(err); e == nil || e.Code != errs.InputTooLong || e.Param != param ||
				!strings.Contains(e.Message, "Field '"+param+"' has more than") {
				t.Errorf("%s, %s: %v", model, param, err)
			}
		}
	}
}

// The pooling of a request applies to query and texts alike. Texts are lower-cased if the model's
// files say so.
func TestReadingOfScores(t *testing.T) {
	m3 := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, m3, 111)
	lower := relabelled(t, "rerank-sigmoid", []string{"LABEL_0"})
	if err := os.WriteFile(filepath.Join(lower, "sentence_bert_config.json"),
		[]byte(`{"max_seq_length": 60, "do_lower_case": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	// the tokenizer's own normalizer would lower-case too
	edit(t, filepath.Join(lower, "tokenizer.json"), map[string]any{"normalizer": nil})
	r := start(t, nil, nil, entry(t, "m3", m3, "bge_m3_flash",
		"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}, score: {}}"),
		entry(t, "ce", lower, "cross_encoder", "tasks: {score: {}}"))
	mean := map[string]any{"pooling": "mean"}
	res, err := r.Score(t.Context(),
		&ScoreRequest{Model: "m3", Query: "the cat", Texts: []string{"on the mat"}, Options: mean})
	if err != nil {
		t.Fatal(err)
	}
	enc, err := r.Encode(t.Context(),
		&Request{Model: "m3", Texts: []string{"the cat", "on the mat"}, Options: mean})
	if err != nil {
		t.Fatal(err)
	}
	dot := 0.0
	for i, x := range floats(enc.Rows[0]) {
		dot += float64(x) * float64(floats(enc.Rows[1])[i])
	}
	if d := res.Scores[0] - dot; d > 1e-5 || d < -1e-5 {
		t.Errorf("score %v, of the encodings %v", res.Scores[0], dot)
	}
	res, err = r.Score(t.Context(),
		&ScoreRequest{Model: "ce", Query: "The CAT", Texts: []string{"MAT", "mat"}})
	if err != nil {
		t.Fatal(err)
	}
	small, err := r.Score(t.Context(), &ScoreRequest{Model: "ce", Query: "the cat", Texts: []string{"mat"}})
	if err != nil || res.Scores[0] != res.Scores[1] || res.Scores[0] != small.Scores[0] {
		t.Errorf("scores %v and %v, %v", res.Scores, small, err)
	}
}
