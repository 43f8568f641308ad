package main

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/tinylib/msgp/msgp"
)

// dialect is the form of one server's embedding requests and answers.
type dialect struct {
	contentType string
	path        func(model string) string
	body        func(model string, texts []string) []byte
	// vectors returns the part of an answer that must not change between equal requests.
	vectors func(answer []byte) ([]byte, error)
}

var dialects = map[string]*dialect{
	"sie": {
		contentType: "application/msgpack",
		path:        func(m string) string { return "/v1/encode/" + m },
		body: func(_ string, texts []string) []byte {
			b := msgp.AppendMapHeader(nil, 1)
			b = msgp.AppendString(b, "items")
			b = msgp.AppendArrayHeader(b, uint32(len(texts)))
			for _, t := range texts {
				b = msgp.AppendMapHeader(b, 1)
				b = msgp.AppendString(b, "text")
				b = msgp.AppendString(b, t)
			}
			return b
		},
		vectors: func(a []byte) ([]byte, error) {
			i, j := bytes.Index(a, []byte("\xa5items")), bytes.Index(a, []byte("\xa6timing"))
			if i < 0 || j < i {
				return nil, errors.New("an answer without items")
			}
			return a[i:j], nil
		},
	},
	"openai": {
		contentType: "application/json",
		path:        func(string) string { return "/v1/embeddings" },
		body: func(m string, texts []string) []byte {
			return marshal(map[string]any{"model": m, "input": texts, "encoding_format": "base64"})
		},
		vectors: func(a []byte) ([]byte, error) { return field(a, "data") },
	},
	"tei": {
		contentType: "application/json",
		path:        func(string) string { return "/embed" },
		body: func(_ string, texts []string) []byte {
			return marshal(map[string]any{"inputs": texts, "truncate": true})
		},
		vectors: func(a []byte) ([]byte, error) { return a, nil },
	},
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and maps always marshal
	}
	return b
}

func field(a []byte, name string) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(a, &m); err != nil {
		return nil, err
	}
	if m[name] == nil {
		return nil, errors.New("an answer without " + name)
	}
	return m[name], nil
}
