//go:build native

package fuzzhttp

import (
	"fmt"
	"strings"
)

// ask is a request whose answer depends only on the request.
type ask struct {
	path    string
	body    any    // nil: a GET
	msgpack bool   // for routes that accept both
	accept  string // "": JSON
}

func (a ask) String() string {
	return fmt.Sprintf("%s msgpack=%v accept=%s %.200s", a.path, a.msgpack, a.accept, toJSON(a.body))
}

const (
	jsonType = "application/json"
	packType = "application/msgpack"
)

// asks returns requests of every kind to every family, each in both encodings if its route has
// both.
func asks() []ask {
	texts := []string{"the cat sat on the mat", "what is the tallest mountain in the world", "a", "zebra",
		"Wolfgang lives in Berlin", "naïve café 東京", strings.Repeat("long ", 100), "the"}
	items := func(n, from int) []any {
		var out []any
		for i := range n {
			out = append(out, tree{"id": fmt.Sprint("i", i), "text": texts[(from+i)%len(texts)]})
		}
		return out
	}
	var out []ask
	native := func(path string, body tree) {
		out = append(out, ask{path, body, false, jsonType}, ask{path, body, true, packType},
			ask{path, body, false, packType}, ask{path, body, true, jsonType})
	}
	for _, dtype := range []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"} {
		native("/v1/encode/mean", tree{"items": items(3, 0), "params": tree{"output_dtype": dtype}})
	}
	for i, params := range []tree{{"options": tree{"dimensions": 8}}, {"options": tree{"pooling": "cls"}},
		{"options": tree{"normalize": true}}, {"options": tree{"is_query": true}}, {}} {
		native("/v1/encode/mean", tree{"items": items(1+i, i), "params": params})
		native("/v1/encode/prompts",
			tree{"items": items(2, i), "params": tree{"options": tree{"is_query": i%2 == 0}}})
	}
	native("/v1/encode/splade", tree{"items": items(4, 1), "params": tree{"output_types": []any{"sparse"}}})
	native("/v1/encode/m3",
		tree{"items": items(3, 2), "params": tree{"output_types": []any{"dense", "sparse", "multivector"}}})
	native("/v1/encode/late",
		tree{"items": items(3, 3), "params": tree{"output_types": []any{"multivector"}}})
	native("/v1/encode/late", tree{
		"items":  items(2, 3),
		"params": tree{"output_types": []any{"multivector"}, "options": tree{"is_query": true}},
	})
	for _, lora := range []string{"", "four", "other", "third"} {
		options := tree{}
		if lora != "" {
			options["lora_id"] = lora
		}
		native("/v1/encode/lo", tree{"items": items(2, 4), "params": tree{"options": options}})
	}
	for _, model := range []string{"ce", "m3", "late"} {
		native("/v1/score/"+model, tree{"query": tree{"text": "the tallest mountain"}, "items": items(5, 0)})
	}
	native("/v1/extract/nli",
		tree{"items": items(2, 0), "params": tree{"labels": []any{"animals", "mountains"}}})
	native("/v1/extract/tags", tree{"items": items(5, 0)})
	native("/v1/extract/moods", tree{"items": items(5, 0)})
	for path, bodies := range map[string][]tree{
		"/v1/embeddings": {{"model": "mean", "input": []any{texts[0], texts[1]}},
			{"model": "mean", "input": texts[2], "encoding_format": "base64"},
			{"model": "prompts", "input": []any{[]any{5, 6, 7}}, "dimensions": 4}},
		"/v1/rerank": {{"model": "ce", "query": "mountain", "documents": []any{texts[0], texts[1], texts[3]},
			"return_documents": true}, {"model": "late", "query": "a", "documents": []any{"b"}, "top_n": 1}},
		"/v2/rerank": {{"model": "ce", "query": "mountain", "documents": []any{texts[0], texts[1]},
			"max_tokens_per_doc": 3}},
		"/embed": {{"inputs": []any{texts[0], texts[4]}},
			{"inputs": texts[6], "normalize": false, "truncate": true}},
		"/embed_sparse": {{"inputs": texts[1]}},
		"/embed_all":    {{"inputs": []any{texts[1], texts[2]}}},
		"/rerank":       {{"query": "q", "texts": []any{texts[0], texts[1]}, "return_text": true}},
		"/predict": {{"inputs": texts[0]},
			{"inputs": []any{[]any{texts[1]}, []any{texts[2], texts[3]}}}},
		"/similarity": {
			{"inputs": tree{"source_sentence": texts[0], "sentences": []any{texts[1], texts[0]}}},
		},
		"/tokenize": {{"inputs": texts[5]},
			{"inputs": []any{texts[0], texts[3]}, "add_special_tokens": false}},
		"/decode": {{"ids": []any{[]any{5, 6, 7}}}},
		"/":       {{"inputs": texts[0]}},
	} {
		for _, body := range bodies {
			out = append(out, ask{path: path, body: body, accept: jsonType})
		}
	}
	for _, path := range []string{"/v1/models", "/v1/models/mean", "/healthz", "/livez", "/readyz", "/health",
		"/info", "/openapi.json", "/docs", "/static/page.js", "/"} {
		out = append(out, ask{path: path})
	}
	return out
}

// wire returns the bytes of an ask, head and body.
func (a ask) wire(extra string) (head string, body []byte) {
	if a.body == nil {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", a.path, extra), nil
	}
	kind := jsonType
	if body = toJSON(a.body); a.msgpack {
		kind, body = packType, toMsgpack(nil, a.body)
	}
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nAccept: %s\r\n%sContent-Length: %d\r\n\r\n",
		a.path, kind, a.accept, extra, len(body)), body
}
