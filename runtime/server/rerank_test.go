package server

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/service"
)

type reranked struct {
	ID, Model, Object string
	Results           []struct {
		Index          int
		RelevanceScore float64 `json:"relevance_score"`
		Document       map[string]any
	}
	Meta struct {
		APIVersion struct{ Version string } `json:"api_version"`
	}
	Usage map[string]int
}

func (r *rig) rerank(path, body string) (reranked, answer) {
	r.t.Helper()
	a := r.do("POST", path, body)
	var out reranked
	if err := json.Unmarshal(a.body, &out); err != nil {
		r.t.Fatalf("%s: %v", a.body, err)
	}
	return out, a
}

func TestRerankDialects(t *testing.T) {
	f := &fakeTasks{}
	r := start(t, nil, with(f))
	for _, c := range []struct{ name, path, body, version, documents string }{
		{"SIE", "/v1/rerank",
			`{"model":"acme/reranker","query":"red cat","documents":["dog","red cat","cat"],"top_n":2,"options":{"max_seq_length":9}}`,
			"1", "no"},
		{"Cohere v1", "/v1/rerank",
			`{"model":"acme/reranker","query":"red cat","documents":[{"text":"dog"},{"text":"red cat","k":1},"cat"],"top_n":2,"return_documents":true,"max_chunks_per_doc":3}`,
			"1", "yes"},
		{"Cohere v2", "/v2/rerank",
			`{"model":"acme/reranker","query":"red cat","documents":["dog","red cat","cat"],"top_n":2,"max_tokens_per_doc":4096}`,
			"2", "no"},
		{"Jina", "/v1/rerank",
			`{"model":"acme__reranker","query":"red cat","documents":["dog","red cat","cat"],"top_n":2,"return_documents":true,"truncation":true}`,
			"1", "yes"},
	} {
		got, a := r.rerank(c.path, c.body)
		if a.status != 200 || len(got.Results) != 2 || got.Results[0].Index != 1 ||
			got.Results[0].RelevanceScore != 2 || got.Results[1].Index != 2 {
			t.Fatalf("%s: %d %s", c.name, a.status, a.body)
		}
		if got.Meta.APIVersion.Version != c.version || got.Object != "list" ||
			got.Usage["total_tokens"] != 30 || !regexp.MustCompile(
			`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got.ID) {
			t.Errorf("%s: %s", c.name, a.body)
		}
		if d := got.Results[0].Document; (d["text"] == "red cat") != (c.documents == "yes") ||
			(c.name == "Cohere v1" && d["k"] != 1.0) {
			t.Errorf("%s: %s", c.name, a.body)
		}
	}
	if f.scored[0].Options["max_seq_length"] != int64(9) || f.models[0] != reranker ||
		f.models[3] != reranker {
		t.Errorf("asked %+v", f.scored)
	}
	// Jina's truncation and Cohere's limit on tokens reach the worker.
	r.rerank("/v1/rerank", `{"model":"acme/reranker","query":"q","documents":["a"],"truncation":false}`)
	r.rerank("/v2/rerank",
		`{"model":"acme/reranker","query":"q","documents":["one  two three","x"],"max_tokens_per_doc":2}`)
	if f.scored[4].Options["overflow_policy"] != "error" || f.scored[4].Field != "documents" {
		t.Errorf("truncation: false became %+v", f.scored[4])
	}
	if got := f.scored[5].Items[0].Text + "|" + f.scored[5].Items[1].Text; got != "one  two|x" {
		t.Errorf("cut to %q", got)
	}
}

func TestRerankErrors(t *testing.T) {
	f := &fakeTasks{}
	r := start(t, nil, with(f))
	type body struct {
		Error   struct{ Message, Code string }
		Message string
		Detail  string
	}
	for _, c := range []struct {
		body   string
		err    error
		status int
		text   string
	}{
		{`{`, nil, 400, "truncated"},
		{`{"model":"acme/reranker","query":"q","documents":[" "]}`, nil, 400, "must not be blank"},
		{`{"model":"none","query":"q","documents":["a"]}`, nil, 404, "not found"},
		{`{"query":"q","documents":["a"]}`, nil, 404, "--default-model"},
		{`{"model":"test/mean","query":"q","documents":["a"]}`, nil, 400, "does not support scoring"},
		{`{"model":"acme/reranker","query":"q","documents":["a"]}`, errs.FullQueue(1, 1, 1), 503,
			"Queue full"},
	} {
		f.err = c.err
		for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
			a := r.do("POST", path, c.body)
			var b body
			if err := json.Unmarshal(a.body, &b); err != nil || a.status != c.status ||
				!strings.Contains(b.Message, c.text) {
				t.Errorf("%s %s: %d %s", path, c.body, a.status, a.body)
			}
			if v1 := path == "/v1/rerank"; v1 != (b.Error.Code != "") || v1 != (b.Detail != "") {
				t.Errorf("%s: wrong envelope %s", path, a.body)
			}
		}
	}
}

// A request that names no model is answered by the first default model that scores.
func TestRerankDefaultModel(t *testing.T) {
	f := &fakeTasks{}
	r := start(t,
		func(o *Options, _ *service.Options) { o.DefaultModels = []string{model, reranker} }, with(f))
	if got, a := r.rerank("/v1/rerank", `{"query":"a","documents":["a"]}`); a.status != 200 ||
		got.Model != reranker {
		t.Errorf("%d %s", a.status, a.body)
	}
}
