package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// judgeCase is one line of cases.json.
type judgeCase struct {
	Query, Document string
	Instruction     *string
	Limit           int64

	tokens int
	score  float64
}

func judgeCases(t *testing.T, name string) (out []judgeCase) {
	t.Helper()
	g := golden.Open(t, name)
	data, err := os.ReadFile(filepath.Join(g.Dir, "cases.json"))
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil || len(out) < 8 {
		t.Fatal(len(out), err)
	}
	scores, _ := g.Float32("scores")
	for i, cu := range g.Int32("cu_seqlens")[1:] {
		out[i].tokens, out[i].score = int(cu-g.Int32("cu_seqlens")[i]), float64(scores[i])
	}
	return out
}

const (
	judgedBy  = "qwen2_flash_cross_encoder.adapter"
	qwen3Load = `{yes_token: "yes", no_token: "no", input_format: qwen3, score_mode: log_softmax}`
)

// judge returns a model file for a golden reranker.
func judge(t *testing.T, id, dir, adapter, loadtime string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 1024
tasks: {score: {}}
profiles:
  default: {adapter_path: "sie_server.adapters.%s:X", max_batch_tokens: 4096, compute_precision: float32, adapter_options: {loadtime: %s}}
`, id, dir, adapter, loadtime))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Scores and token counts are those of the models' own pipelines, for each pair alone and for all
// that share a query.
func TestJudges(t *testing.T) {
	dir := func(name string) string { return golden.Open(t, name).Dir }
	r := start(t, nil, nil,
		judge(t, "judge-qwen3", dir("judge-qwen3"), judgedBy, qwen3Load),
		judge(t, "judge-mxbai", dir("judge-mxbai"), judgedBy, "{}"),
		judge(t, "judge-chat", dir("judge-chat"), "native_causal_cross_encoder.adapter", "{}"))
	for _, name := range []string{"judge-qwen3", "judge-mxbai", "judge-chat"} {
		for i, c := range judgeCases(t, name) {
			q := &ScoreRequest{
				Model: name, Query: c.Query, Texts: []string{c.Document, "another document", c.Document},
				Instruction: c.Instruction, Options: map[string]any{"max_seq_length": c.Limit},
			}
			if name == "judge-mxbai" {
				q.Instruction = nil
			}
			res, err := r.Score(t.Context(), q)
			if err != nil {
				t.Errorf("%s %d: %v", name, i, err)
				continue
			}
			if res.Scores[0] != res.Scores[2] {
				t.Errorf("%s %d: the same document scores %v and %v", name, i, res.Scores[0], res.Scores[2])
			}
			if math.Abs(res.Scores[0]-c.score) > 1e-5 {
				t.Errorf("%s %d: %v, want %v", name, i, res.Scores[0], c.score)
			}
			q.Texts = q.Texts[:1]
			if res, err = r.Score(t.Context(), q); err != nil || res.Tokens != c.tokens {
				t.Errorf("%s %d: %d tokens, want %d: %v", name, i, res.Tokens, c.tokens, err)
			}
		}
	}
}

// What a reranker cannot take is refused by name.
func TestJudgeRefusals(t *testing.T) {
	qwen3 := golden.Open(t, "judge-qwen3").Dir
	chat := golden.Open(t, "judge-chat").Dir
	nine := "find"
	r := start(t, nil, nil,
		judge(t, "j", qwen3, judgedBy, qwen3Load),
		judge(t, "same", qwen3, judgedBy, `{yes_token: "yes", no_token: "yes"}`),
		judge(t, "none", qwen3, "native_causal_cross_encoder.adapter", "{}"),
		judge(t, "bert", golden.Open(t, "rerank-sigmoid").Dir, judgedBy, qwen3Load),
		judge(t, "chat", chat, "native_causal_cross_encoder.adapter", "{}"))
	for _, c := range []struct {
		q    ScoreRequest
		want string
	}{
		{ScoreRequest{Model: "j", Query: strings.Repeat("word ", 1200)},
			"Field 'query': with the instruction"},
		{ScoreRequest{Model: "j", Query: "a", Options: map[string]any{"max_seq_length": int64(50)}},
			"and 49 are possible with a document; shorten the query"},
		{ScoreRequest{Model: "j", Query: "a", Texts: []string{"b", strings.Repeat("word ", 1200)},
			Options: map[string]any{"overflow_policy": "error"}},
			"Field 'items[1]' has more than 1024 tokens"},
		{ScoreRequest{Model: "same", Query: "a"}, "begin with the same token"},
		{ScoreRequest{Model: "none", Query: "a"}, "0 answers to read the logits of"},
		{ScoreRequest{Model: "bert", Query: "a"}, "no decoder"},
		{ScoreRequest{Model: "chat", Query: "a", Instruction: &nine}, "takes no instruction"},
	} {
		if c.q.Texts == nil {
			c.q.Texts = []string{"b"}
		}
		_, err := untilLoaded(t, func() (*Result, error) { return r.Score(t.Context(), &c.q) })
		if e := errs.As(err); e == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.q.Model, err, c.want)
		}
	}
}
