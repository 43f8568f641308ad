package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

func TestDecodeRerank(t *testing.T) {
	docs := func(texts ...string) (out []RerankDocument) {
		for _, s := range texts {
			out = append(out, RerankDocument{Text: s})
		}
		return out
	}
	for body, want := range map[string]RerankRequest{
		// SIE
		`{"model":"m","query":"q","documents":["a","b"],"top_n":1,"return_documents":true,"options":{"max_seq_length":9}}`: {
			Model: "m", Query: "q", Documents: docs("a", "b"), TopN: 1, ReturnDocuments: true,
			Options: Options{"max_seq_length": int64(9)}},
		// Cohere v1, rank_fields after the documents
		`{"model":"m","query":"q","documents":[{"title":"t\u00e9","text":"x","n":1.5},"b"],"rank_fields":["title","n","text"],"max_chunks_per_doc":10}`: {
			Model: "m", Query: "q",
			Documents: []RerankDocument{
				{Text: "té\n1.5\nx", Object: []byte(`{"title":"t\u00e9","text":"x","n":1.5}`)}, {Text: "b"},
			}},
		// Cohere v2
		`{"query":"q","documents":["a"],"max_tokens_per_doc":100,"priority":3,"model":"m","top_n":null}`: {
			Model: "m", Query: "q", Documents: docs("a"), MaxTokensPerDoc: 100},
		// Jina
		`{"model":"m","query":"q","documents":[{"text":"a"}],"truncation":false,"return_embeddings":false,"user":"u"}`: {
			Model: "m", Query: "q", Documents: []RerankDocument{{Text: "a", Object: []byte(`{"text":"a"}`)}},
			NoTruncation: true},
		`{"query":"q","documents":[{"text":"z"}],"documents":["a"],"model":"m"}`: {Model: "m", Query: "q",
			Documents: docs("a")},
	} {
		got, err := DecodeRerank([]byte(body), Limits{})
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for body, want := range map[string][2]string{
		`{"documents":["a"]}`:           {"query", "Object missing required field `query`"},
		`{"query":"q"}`:                 {"documents", "Object missing required field `documents`"},
		`{"query":1,"documents":["a"]}`: {"query", "Expected `str`, got `int` - at `$.query`"},
		`{"query":"q","documents":"a"}`: {"documents", "Expected `array`, got `str` - at `$.documents`"},
		`{"query":"q","documents":[1]}`: {"documents",
			"Expected `str | object`, got `int` - at `$.documents[0]`"},
		`{"query":"q","documents":[]}`:          {"documents", "Field 'documents' must not be empty"},
		`{"query":"q","documents":["a"," \n"]}`: {"documents", "Field 'documents[1]' must not be blank"},
		`{"query":"q","documents":[{"title":"a"}]}`: {"documents",
			"Field 'documents[0]' has no text in 'text'"},
		`{"query":"q","documents":["a","b","c","d"]}`: {"documents",
			"Field 'documents' must contain at most 3 documents"},
		`{"query":" \t","documents":["a"]}`: {"query", "Field 'query' must not be blank"},
		`{"query":"q","documents":["a"],"top_n":0}`: {"top_n",
			"Field 'top_n' must be an integer of at least 1"},
		`{"query":"q","documents":["a"],"nope":1}`: {"nope",
			"Object contains unknown field `nope`"},
		`{"query":"q","documents":["a"],"return_embeddings":true}`: {"return_embeddings", "not supported"},
		`{"query":"q","documents":["` + strings.Repeat("x", 101) + `"]}`: {"documents",
			"Field 'documents[0]' must hold at most 100 bytes of UTF-8 text"},
		`{"query":"q","documents":[{"text":"` + strings.Repeat("x", 101) + `"}]}`: {"documents",
			"Field 'documents[0]' must hold at most 100 bytes of UTF-8 text"},
		`{"query":"q","documents":[{"text":"a","x":[` + strings.Repeat("1,", 2000) + `1]}]}`: {"documents",
			"Field 'documents[0]' must contain at most 1000 values"},
		`{"query":"q","documents":[{"text":"a","b":"c"}],"rank_fields":["text","b","text"]}`: {"rank_fields",
			"Field 'rank_fields' names 'text' twice"},
		`{"query":"q","documents":["a"],"rank_fields":["text"` +
			strings.Repeat(`,"text"`, maxDocumentValues) + `]}`: {"rank_fields",
			"Field 'rank_fields' must contain at most 1000 names"},
		`{"query":"q","documents":["a"]} x`:                     {"", "trailing characters"},
		"{\"query\":\"\xff\",\"documents\":[\"a\"]}":            {"", "utf-8"},
		"{\"query\":\"q\",\"documents\":[{\"text\":\"\xff\"}]}": {"", "utf-8"},
		`[]`: {"", "Expected `object`, got `array`"},
		``:   {"", "truncated"},
	} {
		_, err := DecodeRerank([]byte(body), Limits{MaxScoreItems: 3, MaxItemTextBytes: 100})
		e, ok := err.(*errs.Error)
		if !ok || e.Status != 400 || !strings.Contains(e.Message, want[1]) ||
			(want[0] != "" && e.Param != want[0]) {
			t.Errorf("%.80s: %+v, want %v", body, err, want)
		}
	}
}

// The answer holds the keys that each dialect's clients read.
func TestAppendRerank(t *testing.T) {
	b := AppendRerankJSON(nil, nil,
		&RerankResponse{ID: "i", Model: "m", APIVersion: 1, Tokens: 7, Results: []RerankResult{
			{Index: 1, Score: 0.5, Document: &RerankDocument{Text: "a\"b"}},
			{Index: 0, Score: -3, Document: &RerankDocument{Text: "t", Object: []byte(`{"text":"t","k":1}`)}},
			{Index: 2, Score: -4}}})
	const want = `{"id":"i","object":"list","model":"m","results":[{"index":1,"relevance_score":0.5,"document":{"text":"a\"b"}},` +
		`{"index":0,"relevance_score":-3.0,"document":{"text":"t","k":1}},{"index":2,"relevance_score":-4.0}],` +
		`"meta":{"api_version":{"version":"1"},"tokens":{"input_tokens":7,"output_tokens":0}},` +
		`"usage":{"input_tokens":7,"prompt_tokens":7,"total_tokens":7}}`
	if string(b) != want || !json.Valid(b) {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// An object in the answer is unchanged, whatever else the body held.
func FuzzDecodeRerank(f *testing.F) {
	f.Add([]byte(`{"query":"q","documents":[{"text":"a\u0041"},"b\n"],"rank_fields":["text"],"top_n":1}`))
	f.Add([]byte(`{"query":"q","documents":[{}],"options":{"a":[{}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeRerank(body, Limits{MaxScoreItems: 100})
		if err != nil {
			if _, ok := err.(*errs.Error); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		if len(r.Documents) == 0 || len(r.Documents) > 100 {
			t.Fatalf("%d documents", len(r.Documents))
		}
		out := AppendRerankJSON(nil, nil,
			&RerankResponse{Results: []RerankResult{{Document: &r.Documents[0]}}})
		if !json.Valid(out) {
			t.Fatalf("%q", out)
		}
	})
}
