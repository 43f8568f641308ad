package task_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// The documents of a request share the tokens with which they all begin. Scores and token counts
// are those of each document alone, which shares nothing.
func TestDocumentsShareTheQuery(t *testing.T) {
	var shared, batches, prefixes atomic.Int64
	watch := func(o *Options) {
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
	query := "which words are in the document " + strings.Repeat("that was found here ", 8)
	var texts []string
	for i := range 140 { // two chunks
		texts = append(texts, strings.Repeat(fmt.Sprintf("word %d of a text ", i), 1+i%9))
	}
	texts[3], texts[135] = "", strings.Repeat("long ", 2000)
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
