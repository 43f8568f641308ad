package server

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/service"
)

// decoders serves a tiny embedder and a tiny reranker on Qwen3, as model files describe them.
func decoders(t *testing.T) *rig {
	t.Helper()
	parse := func(text string) *catalog.Model {
		m, warnings, err := catalog.ParseModel("test.yaml", []byte(text))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		return m
	}
	embedder := parse(fmt.Sprintf(`sie_id: test/embedder
weights_path: %s
tasks: {encode: {dense: {dim: 32}}}
max_sequence_length: 64
profiles:
  default:
    adapter_path: sie_server.adapters.qwen2_flash:Qwen2FlashAdapter
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {causal: true}
      runtime:
        pooling: last
        normalize: true
        query_template: "Instruct: {instruction}\nQuery:{text}"
        default_instruction: Given a web search query, retrieve relevant passages that answer the query
`, golden.Open(t, "st-qwen3-last").Dir))
	judge := parse(fmt.Sprintf(`sie_id: test/judge
weights_path: %s
tasks: {score: {}}
max_sequence_length: 1024
profiles:
  default:
    adapter_path: sie_server.adapters.qwen2_flash_cross_encoder.adapter:Qwen2FlashCrossEncoderAdapter
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {yes_token: "yes", no_token: "no", input_format: qwen3, score_mode: log_softmax}
`, golden.Open(t, "judge-qwen3").Dir))
	return start(t, func(so *Options, wo *service.Options) {
		c, err := wo.Catalog.With(embedder, judge)
		if err != nil {
			t.Fatal(err)
		}
		wo.Catalog = c
		defaults("test/embedder", "test/judge")(so, wo)
	})
}

// Queries with the default instruction, queries with one of their own and documents give
// sentence-transformers' vectors over HTTP.
func TestDecoderEncodes(t *testing.T) {
	r, g := decoders(t), golden.Open(t, "st-qwen3-last")
	var texts []struct {
		Text   string
		Prompt string `json:"prompt_name"`
	}
	data, err := os.ReadFile(filepath.Join(g.Dir, "texts.json"))
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil || len(texts) < 12 {
		t.Fatal(len(texts), err)
	}
	vectors, shape := g.Float32("vectors")
	encode := func(text, params string) []float32 {
		body, _ := json.Marshal(text)
		return r.do("POST", "/v1/encode/test/embedder",
			fmt.Sprintf(`{"items":[{"text":%s}],"params":%s}`, body, params),
			"Accept", "application/json").encoded(t).Items[0].Dense.Values
	}
	for i, x := range texts {
		params := []string{`{}`}
		if x.Prompt == "query" {
			params = []string{`{"is_query":true}`,
				`{"is_query":true,"instruction":"Given a web search query, retrieve relevant passages that answer the query"}`}
		}
		want := vectors[i*shape[1] : (i+1)*shape[1]]
		for _, p := range params {
			if d := golden.Compare(encode(x.Text, p), want); d.MaxAbs > 1e-5 {
				t.Errorf("%q as %q with %s: %v", x.Text, x.Prompt, p, d)
			}
		}
	}
	other := encode(texts[0].Text, `{"is_query":true,"instruction":"Find duplicates"}`)
	if d := golden.Compare(other, encode(texts[0].Text, `{"is_query":true}`)); d.MaxAbs < 1e-3 {
		t.Errorf("another instruction changes nothing: %v", d)
	}
}

// The routes of SIE, Cohere, Jina and text-embeddings-inference give one score.
func TestDecoderScores(t *testing.T) {
	r, g := decoders(t), golden.Open(t, "judge-qwen3")
	var cases []struct{ Query, Document string }
	data, err := os.ReadFile(filepath.Join(g.Dir, "cases.json"))
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, _ := g.Float32("scores")
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	q, d0, d1 := quote(cases[0].Query), quote(cases[0].Document), quote(cases[1].Document)
	want := []float64{float64(all[0]), float64(all[1])}
	check := func(route string, got []float64) {
		if len(got) != 2 || math.Abs(got[0]-want[0]) > 1e-5 || math.Abs(got[1]-want[1]) > 1e-5 {
			t.Errorf("%s: %v, want %v", route, got, want)
		}
	}
	var native struct {
		Scores []struct {
			ItemID string `json:"item_id"`
			Score  float64
		}
	}
	r.do("POST", "/v1/score/test/judge", fmt.Sprintf(
		`{"query":{"text":%s},"items":[{"id":"0","text":%s},{"id":"1","text":%s}]}`, q, d0, d1),
		"Accept", "application/json").into(t, &native)
	got := make([]float64, 2)
	for _, s := range native.Scores {
		got[s.ItemID[0]-'0'] = s.Score
	}
	check("/v1/score", got)
	for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
		body := fmt.Sprintf(`{"model":"test/judge","query":%s,"documents":[%s,%s]}`, q, d0, d1)
		out, _ := r.rerank(path, body)
		got := make([]float64, 2)
		for _, x := range out.Results {
			got[x.Index] = x.RelevanceScore
		}
		check(path, got)
	}
	var tei []struct {
		Index int
		Score float64
	}
	r.do("POST", "/rerank", fmt.Sprintf(`{"query":%s,"texts":[%s,%s]}`, q, d0, d1)).into(t, &tei)
	got = make([]float64, 2)
	for _, x := range tei {
		got[x.Index] = x.Score
	}
	check("/rerank", got)
}
