package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// spoilt is a word whose vector is not finite in the models of spoilt models.
const spoilt = "z"

// spoiltModels adds models that give NaN or infinity for texts with the word spoilt: one for
// vectors, one for scores, one for classes.
func spoiltModels(t *testing.T) func(*Options, *service.Options) {
	t.Helper()
	word := testmodels.TokenID(t, golden.Open(t, "st-mean").Dir, spoilt)
	classes := testmodels.WithTokenizer(t, "classify-bert", "st-mean", nil)
	testmodels.Poison(t, classes, "word", word)
	return func(o *Options, w *service.Options) {
		more := testmodels.Catalog(t, nil,
			testmodels.AdHoc(t, "acme/vectors", testmodels.Poisoned(t, "st-mean", "word", word)),
			testmodels.Entry(t, "acme/scores", testmodels.Poisoned(t, "rerank-sigmoid", "word", word),
				"cross_encoder", "tasks: {score: {}}"),
			testmodels.Entry(t, "acme/classes", classes, "sequence_classification", "tasks: {extract: {}}"))
		var err error
		if w.Catalog, err = w.Catalog.With(more.Models()...); err != nil {
			t.Fatal(err)
		}
		o.DefaultModels = []string{"acme/vectors", "acme/scores", "acme/classes"}
	}
}

// An item for which a model gives NaN or infinity is an error of the server in the words of every
// API: its status, its envelope and the place of the item in the request. The other items of a
// batch, and the requests after it, are answered.
func TestNonFiniteResultsInEveryDialect(t *testing.T) {
	r := start(t, spoiltModels(t))
	const says = "produced non-finite values (NaN or infinity) for '"
	text := func(path string) func(map[string]any) string {
		return func(m map[string]any) string {
			var at any = m
			for key := range strings.SplitSeq(path, ".") {
				object, _ := at.(map[string]any)
				at = object[key]
			}
			s, _ := at.(string)
			return s
		}
	}
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		place            string
		fields           map[string]string // of the envelope, beside the message
		messages         []string          // where the envelope has the message
	}{
		{"SIE, vectors", "/v1/encode/acme/vectors", `{"items":[{"text":"a"},{"text":"a z"}]}`, nil, 500,
			"items[1]", map[string]string{
				"code":        "INFERENCE_ERROR",
				"detail.code": "INFERENCE_ERROR",
				"error.code":  "INFERENCE_ERROR",
				"error.param": "items[1]",
				"error.type":  "server_error",
			}, []string{"error.message", "detail.message"}},
		{"SIE, int8 vectors to an older SDK", "/v1/encode/acme/vectors",
			`{"items":[{"text":"z"},{"text":"a"}],"params":{"output_dtype":"int8"}}`,
			[]string{"X-SIE-SDK-Version", "0.3.4"}, 500, "items[0]",
			map[string]string{"code": "INFERENCE_ERROR"}, []string{"error.message", "detail.message"}},
		{"SIE, scores", "/v1/score/acme/scores",
			`{"query":{"text":"a"},"items":[{"text":"a"},{"text":"b"},{"text":"z"}]}`, nil, 500, "items[2]",
			map[string]string{"code": "INFERENCE_ERROR", "error.param": "items[2]"},
			[]string{"error.message", "detail.message"}},
		{"SIE, extraction to an SDK without item errors", "/v1/extract/acme/classes",
			`{"items":[{"text":"a"},{"text":"z"}]}`, []string{"X-SIE-SDK-Version", "0.3.4"}, 500, "items[1]",
			map[string]string{"code": "INFERENCE_ERROR", "error.param": "items[1]"},
			[]string{"error.message"}},
		{"OpenAI", "/v1/embeddings", `{"model":"acme/vectors","input":["a","z","b"]}`, nil, 500, "input[1]",
			map[string]string{
				"error.type": "server_error", "error.param": "input[1]", "code": "", "detail": "",
			}, []string{"error.message"}},
		{"Jina and Cohere v1", "/v1/rerank", `{"model":"acme/scores","query":"a","documents":["b","z"]}`, nil,
			500, "documents[1]",
			map[string]string{"error.type": "server_error", "error.param": "documents[1]"},
			[]string{"error.message", "message", "detail"}},
		{"Cohere v2", "/v2/rerank", `{"model":"acme/scores","query":"a","documents":["z","b"]}`, nil, 500,
			"documents[0]", map[string]string{"error": "", "detail": ""}, []string{"message"}},
		{"TEI, vectors", "/embed", `{"inputs":["a","z"]}`, nil, 424, "inputs[1]",
			map[string]string{"error_type": "Backend"}, []string{"error"}},
		{"TEI, similarity", "/similarity", `{"inputs":{"source_sentence":"a","sentences":["z"]}}`, nil, 424,
			"inputs.sentences[0]", map[string]string{"error_type": "Backend"}, []string{"error"}},
		{"TEI, reranker", "/rerank", `{"query":"a","texts":["b","z"]}`, nil, 424, "texts[1]",
			map[string]string{"error_type": "Backend"}, []string{"error"}},
		{"TEI, classes", "/predict", `{"inputs":[["a"],["z"]]}`, nil, 424, "inputs[1]",
			map[string]string{"error_type": "Backend"}, []string{"error"}},
	} {
		a := r.do("POST", c.path, c.body, append([]string{"Accept", "application/json"}, c.headers...)...)
		var m map[string]any
		if err := json.Unmarshal(a.body, &m); err != nil || a.status != c.status ||
			a.header.Get("X-SIE-Error-Code") != "INFERENCE_ERROR" || a.header.Get("Retry-After") != "" {
			t.Errorf("%s: %d %v %s", c.name, a.status, a.header, a.body)
			continue
		}
		for field, want := range c.fields {
			if got := text(field)(m); got != want {
				t.Errorf("%s: %s is %q, want %q: %s", c.name, field, got, want, a.body)
			}
		}
		for _, field := range c.messages {
			if got := text(field)(m); !strings.Contains(got, says+c.place+"'") {
				t.Errorf("%s: %s is %q: %s", c.name, field, got, a.body)
			}
		}
	}
	// In extraction the item fails alone, for SDKs that read the errors of items.
	var found extracted
	r.do("POST", "/v1/extract/acme/classes", `{"items":[{"text":"a"},{"id":"bad","text":"z"},{"text":"b"}]}`,
		"Accept", "application/json").into(t, &found)
	for i, it := range found.Items {
		if (it.Error != nil) != (i == 1) || (len(it.Classifications) == 0) != (i == 1) {
			t.Errorf("item %d: %+v", i, it)
		}
	}
	if bad := found.Items[1]; bad.ID != "bad" || bad.Error == nil || bad.Error.Code != "INFERENCE_ERROR" ||
		!strings.Contains(bad.Error.Message, says+"items[1]'") {
		t.Errorf("%+v", bad)
	}
	for path, body := range map[string]string{
		"/v1/embeddings": `{"model":"acme/vectors","input":["a","b"]}`,
		"/v2/rerank":     `{"model":"acme/scores","query":"a","documents":["b"]}`,
		"/predict":       `{"inputs":"a"}`,
		"/embed":         `{"inputs":"a"}`,
	} {
		if a := r.do("POST", path, body); a.status != 200 {
			t.Errorf("%s without: %d %s", path, a.status, a.body)
		}
	}
	for model, n := range map[string]string{"acme/vectors": "5", "acme/scores": "4", "acme/classes": "3"} {
		testrig.Until(t, n+" items of "+model+" are counted", func() bool { // behind the answers
			return r.metric(`sie_nonfinite_items_total{model="`+model+`"}`) == n
		})
	}
}
