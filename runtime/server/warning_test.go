package server

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/api"
)

func TestIgnoredOptionsAreNamed(t *testing.T) {
	r := start(t, nil, with(&fakeTasks{ignored: func(r *api.ScoreRequest) []string {
		if len(r.Options) > 0 {
			return []string{"normalize", "top_k"}
		}
		return nil
	}}))
	for path, body := range map[string]string{
		scorePath: `{"query":{"text":"a"},"items":[{"text":"b"}],"options":{"normalize":true}}`,
		"/v1/rerank": `{"model":"` + reranker +
			`","query":"a","documents":["b"],"options":{"normalize":true}}`,
	} {
		a := r.do("POST", path, body)
		if a.status != 200 ||
			a.header.Get("X-SIE-Warning") != "options of other operations ignored: normalize, top_k" {
			t.Errorf("%s: %d, %q", path, a.status, a.header.Get("X-SIE-Warning"))
		}
		a = r.do("POST", path, strings.Replace(body, `,"options":{"normalize":true}`, "", 1))
		if _, ok := a.header["X-Sie-Warning"]; a.status != 200 || ok {
			t.Errorf("%s without options: %d, %v", path, a.status, a.header)
		}
	}
	a := r.do("POST", encodePath,
		`{"items":[{"text":"a"}],"params":{"options":{"top_k":3,"normalize":true}}}`)
	if a.status != 200 || a.header.Get("X-SIE-Warning") != "options of other operations ignored: top_k" {
		t.Errorf("encode: %d %s, %q", a.status, a.body, a.header.Get("X-SIE-Warning"))
	}
}
