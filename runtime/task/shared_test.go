package task_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
)

// The documents of a request share the tokens with which they all begin. Scores and token counts
// are those of each document alone, which shares nothing.
func TestDocumentsShareTheQuery(t *testing.T) {
	var shared, batches, prefixes atomic.Int64
	watch := func(o *Options) {
		o.ShortTokens = 400
		o.Intercept = func(b *engine.Batch) error {
			batches.Add(1)
			if b.Prefix != nil {
				shared.Add(int64(len(b.Prefix.IDs)))
				prefixes.Add(int64(len(b.Prefix.CuSeqlens) - 1))
			}
			return nil
		}
	}
	dir := func(name string) string { return golden.Open(t, name).Dir }
	r := start(t, watch, nil,
		judge(t, "judge-qwen3", dir("judge-qwen3"), judgedBy, qwen3Load),
		judge(t, "judge-mxbai", dir("judge-mxbai"), judgedBy, "{}"),
		judge(t, "judge-chat", dir("judge-chat"), "native_causal_cross_encoder.adapter", "{}"))
	query := "which words are in the document " + strings.Repeat("that was found here ", 20)
	var texts []string
	for i := range 140 { // two chunks; those of the first have more in common
		text := strings.Repeat(fmt.Sprintf("word %d of a text ", i), 1+i%9)
		if i < 128 {
			text = "the same words begin this text " + text
		}
		texts = append(texts, text)
	}
	for _, i := range []int{3, 5, 100, 135, 136} { // for the program of longer texts
		texts[i] += strings.Repeat("long ", 230)
	}
	texts[137] = ""
	for _, name := range []string{"judge-qwen3", "judge-mxbai", "judge-chat"} {
		ask := func(texts ...string) *Result {
			t.Helper()
			res, err := untilLoaded(t, func() (*Result, error) {
				return r.Score(t.Context(), &ScoreRequest{Model: name, Query: query, Texts: texts})
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return res
		}
		shared.Store(0)
		all, tokens := ask(texts...), 0
		if shared.Load() < 40 || shared.Load() > 1024*batches.Load() {
			t.Errorf("%s: %d tokens of prefixes in %d batches", name, shared.Load(), batches.Load())
		}
		shared.Store(0)
		for i, text := range texts {
			one := ask(text)
			tokens += one.Tokens
			if one.Scores[0] != all.Scores[i] {
				t.Errorf("%s: text %d scores %v alone and %v in company",
					name, i, one.Scores[0], all.Scores[i])
			}
		}
		if shared.Load() != 0 {
			t.Errorf("%s: %d tokens are shared by one text", name, shared.Load())
		}
		if tokens != all.Tokens {
			t.Errorf("%s: %d tokens, alone %d", name, all.Tokens, tokens)
		}
	}
}

// What items have in common leaves each a token of its own.
func TestCommonStart(t *testing.T) {
	items := func(lists ...[]int32) (out []batch.Item) {
		for _, ids := range lists {
			out = append(out, batch.Item{Inputs: batch.Inputs{IDs: ids}})
		}
		return out
	}
	for _, c := range []struct {
		items []batch.Item
		want  []int32
	}{
		{items([]int32{1, 2, 3}), nil},
		{items([]int32{1, 2, 3}, []int32{1, 2, 4}), []int32{1, 2}},
		{items([]int32{1, 2, 3}, []int32{1, 2, 3}), []int32{1, 2}},
		{items([]int32{1, 2, 3, 4}, []int32{1, 2}, nil), []int32{1}},
		{items([]int32{1, 2, 3}, []int32{2, 2, 3}), []int32{}},
		{items([]int32{1, 2, 3, 4, 5, 6}, []int32{1, 2, 3, 4, 5, 7}), []int32{1, 2, 3, 4}}, // at most 4
		{items([]int32{1, 2, 3, 4}, make([]int32, 9), []int32{1, 2, 3, 5}), []int32{1, 2, 3}},
	} {
		if got := task.CommonStart(c.items, 8, 4); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.items, got, c.want)
		}
	}
}

// The texts of a later chunk share the query, too, where those of the first one have more than it
// in common.
func TestLaterTextsShareTheQuery(t *testing.T) {
	var shared atomic.Int64
	r := start(t, func(o *Options) {
		o.Intercept = func(b *engine.Batch) error {
			for _, rows := range b.PrefixRows {
				if rows > 0 {
					shared.Add(1)
				}
			}
			return nil
		}
	}, nil, judge(t, "judge-qwen3", golden.Open(t, "judge-qwen3").Dir, judgedBy, qwen3Load))
	var texts []string
	for i := range 256 { // two chunks
		start := []string{"these", "others"}[i/128]
		texts = append(texts, fmt.Sprintf("%s begin like this, number %d", start, i))
	}
	res, err := untilLoaded(t, func() (*Result, error) {
		return r.Score(t.Context(), &ScoreRequest{Model: "judge-qwen3", Query: "which", Texts: texts})
	})
	if err != nil {
		t.Fatal(err)
	}
	if shared.Load() <= 128 {
		t.Errorf("%d texts of %d share what they begin with", shared.Load(), len(res.Scores))
	}
}
